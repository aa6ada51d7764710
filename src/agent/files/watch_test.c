/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/test_calls.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static uint32_t watch;

static uint32_t open_watch(const char *path, uint8_t flags)
{
    struct buf *b = rig_request(WIRE_WATCH);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(path));
    wire_put_u8(b, flags);
    return rig_open(&rig, b);
}

static void start(const char *path, uint8_t flags)
{
    watch = open_watch(path, flags);
    frame_free(rig_expect(&rig, watch, WIRE_REPLY));
}

/* What comes until nothing comes any more, as "C name;": a letter for each kind, '+' behind it when there is an
 * entry. */
static void expect_events(const char *want)
{
    AUTO_BUF struct buf have = BUF_INIT(1 << 20);
    for (struct frame *f; (f = rig_next(&rig, watch, 120)); frame_free(f)) {
        assert_int_equal(f->type, WIRE_DATA);
        struct wire_reader r = wire_reader_of(str_n(f->payload, f->n));
        uint8_t kind = wire_get_u8(&r);
        struct str name = wire_get_str(&r);
        uint8_t has_entry = wire_get_u8(&r);
        (void)buf_printf(&have, "%c%s %.*s;", "?CWRNM"[kind], has_entry ? "+" : "", STR_ARG(name));
        if (has_entry) {
            struct entry e = entry_get(&r);
            assert_true(str_ends(e.path, name) || str_eqc(name, "."));
        }
        assert_true(wire_done(&r));
        rig_credit(&rig, watch, (uint32_t)f->n, true);
    }
    (void)buf_append_char(&have, 0);
    assert_string_equal(buf_data(&have), want);
}

static void test_kinds(void **state)
{
    (void)state;
    char *f = rig_path(&rig, "home/f"), *g = rig_path(&rig, "home/g");
    assert_int_equal(mkdir(rig_path(&rig, "home/d"), 0755), 0);
    rig_write(rig_path(&rig, "outside"), "");
    start("", 0);
    rig_write(f, "1");
    expect_events("C f;W f;");
    assert_int_equal(chmod(f, 0600), 0);
    expect_events("M f;");
    assert_int_equal(rename(f, g), 0);
    expect_events("N f;C g;");
    assert_int_equal(rename(rig_path(&rig, "outside"), f), 0);
    expect_events("C f;");
    assert_int_equal(rename(f, rig_path(&rig, "outside")), 0);
    expect_events("N f;");
    assert_int_equal(unlink(g), 0);
    expect_events("R g;");
    (void)rig_read(rig_path(&rig, "passwd"));
    rig_write(rig_path(&rig, "home/d/x"), "not seen");
    expect_events("");
    assert_int_equal(mkdir(rig_path(&rig, "home/e"), 0755), 0);
    rig_write(rig_path(&rig, "home/e/x"), "not seen");
    expect_events("C e;");
    assert_int_equal(rmdir(rig_path(&rig, "home/d")), -1);
    assert_int_equal(unlink(rig_path(&rig, "home/d/x")), 0);
    assert_int_equal(rmdir(rig_path(&rig, "home/d")), 0);
    expect_events("R d;");
}

static void test_entries(void **state)
{
    (void)state;
    assert_int_equal(mkdir(rig_path(&rig, "home/d"), 0755), 0);
    start(rig_path(&rig, "home"), WIRE_WATCH_ENTRY | WIRE_WATCH_RECURSIVE);
    rig_write(rig_path(&rig, "home/d/f"), "1");
    expect_events("C+ d/f;W+ d/f;");
    assert_int_equal(rename(rig_path(&rig, "home/d/f"), rig_path(&rig, "home/g")), 0);
    expect_events("N d/f;C+ g;");
    assert_int_equal(unlink(rig_path(&rig, "home/g")), 0);
    expect_events("R g;");
    assert_int_equal(chmod(rig_path(&rig, "home"), 0700), 0);
    expect_events("M+ .;");
}

static void test_new_directories(void **state)
{
    (void)state;
    assert_int_equal(mkdir(rig_path(&rig, "home/old"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "home/old/er"), 0755), 0);
    start("", WIRE_WATCH_RECURSIVE);
    rig_write(rig_path(&rig, "home/old/er/f"), "");
    expect_events("C old/er/f;");
    assert_int_equal(mkdir(rig_path(&rig, "home/new"), 0755), 0);
    expect_events("C new;");
    rig_write(rig_path(&rig, "home/new/f"), "1");
    expect_events("C new/f;W new/f;");
    /* Made elsewhere and moved in: all of it is new. */
    assert_int_equal(mkdir(rig_path(&rig, "t"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "t/u"), 0755), 0);
    rig_write(rig_path(&rig, "t/u/f"), "");
    assert_int_equal(rename(rig_path(&rig, "t"), rig_path(&rig, "home/t")), 0);
    expect_events("C t;C t/u;C t/u/f;");
    /* Renamed inside: goes on under its new name, nothing in it is new. */
    assert_int_equal(rename(rig_path(&rig, "home/t"), rig_path(&rig, "home/new/t2")), 0);
    expect_events("N t;C new/t2;");
    rig_write(rig_path(&rig, "home/new/t2/u/g"), "");
    expect_events("C new/t2/u/g;");
    /* Moved out: none of its business any more. */
    assert_int_equal(rename(rig_path(&rig, "home/new/t2"), rig_path(&rig, "t")), 0);
    expect_events("N new/t2;");
    rig_write(rig_path(&rig, "t/u/h"), "");
    rig_write(rig_path(&rig, "home/end"), "");
    expect_events("C end;");
}

/* A tree that is made faster than it can be watched: each of its entries is reported, once. */
static void test_tree_at_once(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"};
    for (int round = 0; round < 20; round++) {
        AUTO_BUF struct buf have = BUF_INIT(1 << 20);
        start("", WIRE_WATCH_RECURSIVE);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            assert_int_equal(mkdir(rig_path(&rig, "home/%s", names[i]), 0755), 0);
        rig_write(rig_path(&rig, "home/a/b/c/d/e/f"), "");
        size_t left = 6;
        while (left) {
            struct frame *f = rig_expect(&rig, watch, WIRE_DATA);
            assert_int_equal(f->payload[0], WIRE_WATCH_CREATE);
            (void)buf_append(&have, f->payload + 5, f->n - 6);
            (void)buf_append_char(&have, ';');
            frame_free(f);
            left--;
        }
        assert_true(str_eqc(buf_str(&have), "a;a/b;a/b/c;a/b/c/d;a/b/c/d/e;a/b/c/d/e/f;"));
        assert_true(rig_is_quiet(&rig, watch, 20));
        rig_send(&rig, WIRE_CLOSE, 0, watch, NULL, 0);
        rig_expect_end(&rig, watch, ERR_CANCELED, "closed");
        rig_expect_end(&rig, rig_open_path(&rig, WIRE_REMOVE, "user", "a"), ERR_OK, "");
    }
}

static void test_root_goes(void **state)
{
    (void)state;
    assert_int_equal(mkdir(rig_path(&rig, "home/d"), 0755), 0);
    assert_int_equal(symlink("d", rig_path(&rig, "home/link")), 0);
    rig_write(rig_path(&rig, "home/d/f"), "");
    start("link", WIRE_WATCH_RECURSIVE);
    assert_int_equal(rename(rig_path(&rig, "home/d"), rig_path(&rig, "home/e")), 0);
    expect_events("N .;");
    assert_int_equal(unlink(rig_path(&rig, "home/e/f")), 0);
    assert_int_equal(rmdir(rig_path(&rig, "home/e")), 0);
    expect_events("R f;");
    rig_send(&rig, WIRE_CLOSE, 0, watch, NULL, 0);
    rig_expect_end(&rig, watch, ERR_CANCELED, "closed");
}

/* The host takes nothing: what is queued is bounded, and the end is defined. */
static void test_too_slow(void **state)
{
    (void)state;
    static char long_name[201];
    memset(long_name, 'n', sizeof(long_name) - 1);
    start("", 0);
    for (int i = 0; i < 12000; i++) {
        char *path = rig_path(&rig, "home/%s%d", long_name, i % 7);
        if (i % 2)
            assert_int_equal(unlink(rig_path(&rig, "home/%s%d", long_name, (i - 1) % 7)), 0);
        else
            rig_write(path, "");
    }
    struct result x;
    rig_result(&rig, watch, false, &x);
    char message[200];
    (void)snprintf(message, sizeof(message), "watch of %s/home ended: too many events are waiting to be taken",
                   rig.dir);
    assert_string_equal(x.message, message);
    assert_int_equal(x.code, ERR_RESOURCE_EXHAUSTED);
    result_fini(&x);
}

/* More than can be queued, all at once, to a host that takes what comes: nothing is left out. */
static void test_a_large_tree_appears(void **state)
{
    (void)state;
    enum { FILES = 6000 };
    assert_int_equal(mkdir(rig_path(&rig, "tree"), 0755), 0);
    for (int i = 0; i < FILES; i++)
        rig_write(rig_path(&rig, "tree/%d", i), "");
    start("", WIRE_WATCH_RECURSIVE | WIRE_WATCH_ENTRY);
    assert_int_equal(rename(rig_path(&rig, "tree"), rig_path(&rig, "home/tree")), 0);
    for (int i = 0; i < FILES + 1; i++) {
        struct frame *f = rig_expect(&rig, watch, WIRE_DATA);
        assert_int_equal(f->payload[0], WIRE_WATCH_CREATE);
        rig_credit(&rig, watch, (uint32_t)f->n, true);
        frame_free(f);
    }
    rig_write(rig_path(&rig, "home/tree/new"), "");
    expect_events("C+ tree/new;");
}

static long agent_cpu_ticks(void)
{
    const char *p = strrchr(rig_read(rig_path(&rig, "../../../proc/%d/stat", (int)rig.agent)), ')');
    long fields[14] = {0};
    for (size_t i = 0; p && i < ARRAY_SIZE(fields); i++) {
        p = strchr(p + 1, ' ');
        fields[i] = p ? strtol(p, NULL, 10) : 0;
    }
    return fields[11] + fields[12];
}

/* The same while the host reads nothing at all: the agent waits, it does not ask again and again. */
static void test_too_slow_and_stuck(void **state)
{
    (void)state;
    char *big = rig_path(&rig, "big");
    long most = strtol(rig_read("/proc/sys/fs/inotify/max_queued_events"), NULL, 10);
    if (most > 65536) {
        print_message("the kernel queues too much to wait for\n");
        skip();
    }
    rig_write(big, "x");
    assert_int_equal(truncate(big, 64 << 20), 0);
    start("", 0);
    uint32_t download = open_read(big, 0, UINT64_MAX);
    rig_credit(&rig, download, 64 << 20, false);
    frame_free(rig_expect(&rig, download, WIRE_REPLY));
    frame_free(rig_expect(&rig, download, WIRE_DATA));
    for (int i = 0; i < most / 2 + 4096; i++) {
        char *path = rig_path(&rig, "home/f");
        rig_write(path, "");
        assert_int_equal(unlink(path), 0);
    }
    (void)usleep(100000);
    long before = agent_cpu_ticks();
    (void)usleep(400000);
    assert_in_range(agent_cpu_ticks() - before, 0, sysconf(_SC_CLK_TCK) / 10);
    struct result x;
    rig_result(&rig, watch, false, &x);
    assert_int_equal(x.code, ERR_RESOURCE_EXHAUSTED);
    result_fini(&x);
}

/* Makes directories of long names in each other, as many as a path can have, and returns the last. */
static int make_chain(int parent, char letter, const char *first)
{
    char name[251] = {0};
    int fd = dup(parent);
    for (int i = 0; i < 15; i++) {
        memset(name, letter, sizeof(name) - 1);
        const char *called = i == 0 ? first : name;
        assert_int_equal(mkdirat(fd, called, 0755), 0);
        int next = openat(fd, called, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(fd);
        fd = next;
    }
    return fd;
}

static void test_beyond_what_a_path_can_be(void **state)
{
    (void)state;
    enum { CHAINS = 10 };
    static const char *const names[CHAINS] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    char long_name[251] = {0};
    int home = open(rig_path(&rig, "home"), O_RDONLY | O_DIRECTORY | O_CLOEXEC), ends[CHAINS];
    for (size_t i = 0; i < CHAINS; i++)
        ends[i] = make_chain(home, names[i][0], names[i]);
    /* What was too deep to be watched comes up. */
    memset(long_name, 'x', sizeof(long_name) - 1);
    int above = -1, deep = openat(ends[0], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mkdirat(deep, long_name, 0755), 0);
        int next = openat(deep, long_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)fd_close(above);
        above = deep;
        deep = next;
    }
    start("", WIRE_WATCH_RECURSIVE);
    assert_int_equal(renameat(above, long_name, home, "up"), 0);
    expect_events("C up;");
    rig_write(rig_path(&rig, "home/up/f"), "");
    expect_events("C up/f;");
    /* One below the other, until what is at the end has no path any more: nothing is said of it, and the watch goes
     * on. */
    for (size_t i = 1; i < CHAINS; i++)
        assert_int_equal(renameat(home, names[i - 1], ends[i], names[i - 1]), 0);
    for (struct frame *f; (f = rig_next(&rig, watch, 120)); frame_free(f))
        rig_credit(&rig, watch, (uint32_t)f->n, true);
    assert_int_equal(mkdirat(ends[0], "unseen", 0755), 0);
    rig_write(rig_path(&rig, "home/seen"), "");
    expect_events("C seen;");
    rig_send(&rig, WIRE_CLOSE, 0, watch, NULL, 0);
    rig_expect_end(&rig, watch, ERR_CANCELED, "closed");
    rig_expect_end(&rig, rig_open_path(&rig, WIRE_REMOVE, "user", names[CHAINS - 1]), ERR_OK, "");
    for (size_t i = 0; i < CHAINS; i++)
        (void)close(ends[i]);
    (void)close(above);
    (void)close(deep);
    (void)close(home);
}

static void test_limits(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++)
        start("", 0);
    rig_expect_end(&rig, open_watch("", 0), ERR_RESOURCE_EXHAUSTED, "64 watches are open already");
    rig_send(&rig, WIRE_CLOSE, 0, watch, NULL, 0);
    rig_expect_end(&rig, watch, ERR_CANCELED, "closed");
    start("", 0);
    rig_connect(&rig); /* all of them go with their session */
    for (int i = 0; i < 64; i++)
        start("", 0);
}

/* A large tree is taken up in steps; meanwhile others are answered, and it may be given up. */
static void test_large_tree(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++) {
        assert_int_equal(mkdir(rig_path(&rig, "home/%d", i), 0755), 0);
        assert_int_equal(mkdir(rig_path(&rig, "home/%d/x", i), 0755), 0);
    }
    uint32_t given_up = open_watch("", WIRE_WATCH_RECURSIVE);
    rig_send(&rig, WIRE_CLOSE, 0, given_up, NULL, 0);
    start("", WIRE_WATCH_RECURSIVE);
    rig_write(rig_path(&rig, "home/599/x/f"), "");
    expect_events("C 599/x/f;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_kinds),
        TEST(test_entries),
        TEST(test_new_directories),
        TEST(test_tree_at_once),
        TEST(test_root_goes),
        TEST(test_too_slow),
        TEST(test_limits),
        TEST(test_large_tree),
        TEST(test_too_slow_and_stuck),
        TEST(test_a_large_tree_appears),
        TEST(test_beyond_what_a_path_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

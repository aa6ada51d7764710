/* SPDX-License-Identifier: Apache-2.0 */
/* A directory that is the root of all paths: links that lead out of it, and links that change while they are followed;
 * and CHANGE. */
#include "agent/test_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static uint32_t open_confine(const char *path)
{
    struct buf *b = rig_request(WIRE_CONFINE);
    wire_put_str(b, str_of(path));
    return rig_open(&rig, b);
}

/* <dir>/secret, and <dir>/vol with a file and links to that. */
static void make_tree(void)
{
    assert_int_equal(mkdir(rig_path(&rig, "vol"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "vol/d"), 0755), 0);
    assert_int_equal(mkdir(rig_path(&rig, "out"), 0755), 0);
    rig_write(rig_path(&rig, "out/f"), "outside");
    rig_write(rig_path(&rig, "vol/d/f"), "inside");
    assert_int_equal(symlink(rig_path(&rig, "out/f"), rig_path(&rig, "vol/absolute")), 0);
    assert_int_equal(symlink("../out/f", rig_path(&rig, "vol/up")), 0);
    assert_int_equal(symlink("../../../../../../../..", rig_path(&rig, "vol/d/far")), 0);
    assert_int_equal(symlink("../out", rig_path(&rig, "vol/dir")), 0);
    assert_int_equal(symlink("/d/f", rig_path(&rig, "vol/own")), 0);
    assert_int_equal(symlink("/proc/self/root", rig_path(&rig, "vol/magic")), 0);
}

static void expect_code(uint32_t stream, uint16_t code)
{
    struct result x;
    rig_result(&rig, stream, true, &x);
    assert_int_equal(x.code, code);
    result_fini(&x);
}

static void expect_content(const char *path, const char *want)
{
    struct result x;
    rig_result(&rig, open_read(path, 0, UINT64_MAX), true, &x);
    assert_int_equal(x.code, ERR_OK);
    assert_int_equal(buf_len(&x.data), strlen(want));
    assert_memory_equal(buf_data(&x.data), want, strlen(want));
    result_fini(&x);
}

static uint32_t open_change(const char *path, uint8_t flags, uint32_t uid, uint32_t gid, uint32_t mode)
{
    struct buf *b = rig_request(WIRE_CHANGE);
    wire_put_str(b, STR("root"));
    wire_put_str(b, str_of(path));
    wire_put_u8(b, flags);
    wire_put_u32(b, uid);
    wire_put_u32(b, gid);
    wire_put_u32(b, mode);
    return rig_open(&rig, b);
}

static uint32_t open_read_root(const char *path)
{
    struct buf *b = rig_request(WIRE_READ);
    wire_put_str(b, STR("root"));
    wire_put_str(b, str_of(path));
    wire_put_u64(b, 0);
    wire_put_u64(b, UINT64_MAX);
    return rig_open(&rig, b);
}

static void expect_root_content(const char *path, const char *want)
{
    struct result x;
    rig_result(&rig, open_read_root(path), true, &x);
    assert_int_equal(x.code, ERR_OK);
    assert_int_equal(buf_len(&x.data), strlen(want));
    assert_memory_equal(buf_data(&x.data), want, strlen(want));
    result_fini(&x);
}

static void test_links_lead_nowhere_else(void **state)
{
    (void)state;
    struct result x;
    make_tree();
    expect_content(rig_path(&rig, "vol/up"), "outside"); /* so far they do */
    expect_code(open_confine(rig_path(&rig, "nothing")), ERR_NOT_FOUND);
    expect_code(open_confine("vol"), ERR_INVALID_ARGUMENT);
    rig_expect_end(&rig, open_confine(rig_path(&rig, "vol")), ERR_OK, "");
    static const char *const bad[] = {"/absolute",         "/up",   "/dir/f", "/../out/f", "/d/far/out/f",
                                      "/magic/etc/passwd", "/out/f"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        expect_code(open_read_root(bad[i]), ERR_NOT_FOUND);
    expect_root_content("/own", "inside"); /* absolute ones begin at the root */
    expect_root_content("/d/far/d/f", "inside");
    expect_root_content("/../../d/f", "inside");
    /* Of what a link leads to outside nothing is told either. */
    (void)rig_stat(&rig, "/up", &x);
    struct wire_reader r = wire_reader_of(buf_str(&x.tail));
    struct entry e = entry_get(&r);
    assert_int_equal(e.is_link, 1);
    assert_int_equal(e.type, WIRE_FILE_UNKNOWN);
    assert_true(str_eqc(e.target, "/up"));
    result_fini(&x);
    expect_code(rig_open_path(&rig, WIRE_MKDIR, "root", "/dir/new"), ERR_INVALID_ARGUMENT);
    expect_code(rig_open_path(&rig, WIRE_REMOVE, "root", "/dir"), ERR_OK);
    assert_int_equal(access(rig_path(&rig, "out/f"), F_OK), 0);
    assert_int_equal(access(rig_path(&rig, "out/new"), F_OK), -1);
    expect_code(EXEC(&rig, "/bin/sh", "-c", "true"), ERR_INVALID_ARGUMENT);
    /* The next session is no freer. */
    rig_disconnect(&rig);
    rig_connect(&rig);
    expect_code(open_read_root("/absolute"), ERR_NOT_FOUND);
    expect_root_content("/d/f", "inside");
}

/* Somebody who has the volume, too, swaps a directory and a link to the outside as fast as he can. */
static void test_links_that_change(void **state)
{
    (void)state;
    enum { ROUNDS = 500 };
    size_t found = 0;
    make_tree();
    char *d = rig_path(&rig, "vol/d"), *kept = rig_path(&rig, "vol/kept"), *link = rig_path(&rig, "vol/link");
    assert_int_equal(symlink(rig_path(&rig, "out"), link), 0);
    pid_t swapper = fork();
    if (swapper == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(60);
        for (;;)
            if (rename(d, kept) < 0 || rename(link, d) < 0 || rename(d, link) < 0 || rename(kept, d) < 0)
                _exit(1);
    }
    rig_expect_end(&rig, open_confine(rig_path(&rig, "vol")), ERR_OK, "");
    for (int i = 0; i < ROUNDS; i++) {
        struct result x;
        rig_result(&rig, open_read_root("/d/f"), true, &x);
        if (x.code == ERR_OK) {
            assert_int_equal(buf_len(&x.data), strlen("inside"));
            assert_memory_equal(buf_data(&x.data), "inside", strlen("inside"));
            found++;
        }
        result_fini(&x);
        rig_result(&rig, open_change("/d/f", WIRE_CHANGE_MODE, 0, 0, 0600), true, &x);
        result_fini(&x);
        rig_result(&rig, open_change("/d/new", WIRE_CHANGE_MAKE, 0, 0, 0), true, &x);
        result_fini(&x);
    }
    int status;
    assert_int_equal(kill(swapper, SIGKILL), 0);
    assert_int_equal(waitpid(swapper, &status, 0), swapper);
    assert_true(WIFSIGNALED(status)); /* to the end */
    assert_true(found);
    struct stat st;
    assert_int_equal(stat(rig_path(&rig, "out/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(access(rig_path(&rig, "out/new"), F_OK), -1);
}

static void test_changes(void **state)
{
    (void)state;
    struct stat st;
    make_tree();
    rig_expect_end(&rig, open_confine(rig_path(&rig, "vol")), ERR_OK, "");
    expect_code(open_change("/d/f", WIRE_CHANGE_UID | WIRE_CHANGE_GID | WIRE_CHANGE_MODE, 7, 8, 0600), ERR_OK);
    assert_int_equal(stat(rig_path(&rig, "vol/d/f"), &st), 0);
    assert_int_equal(st.st_uid, 7);
    assert_int_equal(st.st_gid, 8);
    assert_int_equal(st.st_mode & 07777, 0600);
    expect_code(open_change("/d/f", WIRE_CHANGE_GID, 0, 9, 0), ERR_OK);
    expect_code(open_change("/absolute", WIRE_CHANGE_UID | WIRE_CHANGE_MODE, 5, 0, 0777), ERR_OK); /* the link itself */
    assert_int_equal(lstat(rig_path(&rig, "vol/absolute"), &st), 0);
    assert_int_equal(st.st_uid, 5);
    assert_int_equal(stat(rig_path(&rig, "out/f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(stat(rig_path(&rig, "vol/d/f"), &st), 0);
    assert_int_equal(st.st_uid, 7);
    assert_int_equal(st.st_gid, 9);
    expect_code(open_change("/nothing", WIRE_CHANGE_MODE, 0, 0, 0600), ERR_NOT_FOUND);
    expect_code(open_change("/e", WIRE_CHANGE_MAKE | WIRE_CHANGE_MODE, 0, 0, 0700), ERR_OK);
    assert_int_equal(stat(rig_path(&rig, "vol/e"), &st), 0);
    assert_true(S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0700);
    expect_code(open_change("/e", WIRE_CHANGE_MAKE, 0, 0, 0), ERR_ALREADY_EXISTS);
    expect_code(open_change("/x/y", WIRE_CHANGE_MAKE, 0, 0, 0), ERR_NOT_FOUND);
    expect_code(open_change("/x/y", WIRE_CHANGE_MAKE | WIRE_CHANGE_PARENTS, 0, 0, 0), ERR_OK);
    expect_code(open_change("/x/y", WIRE_CHANGE_MAKE | WIRE_CHANGE_PARENTS, 0, 0, 0), ERR_OK);
    expect_code(open_change("/d/f", WIRE_CHANGE_MAKE | WIRE_CHANGE_PARENTS, 0, 0, 0), ERR_INVALID_ARGUMENT);
    expect_code(open_change("/d/f/g", WIRE_CHANGE_MAKE | WIRE_CHANGE_PARENTS, 0, 0, 0), ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_links_lead_nowhere_else),
        TEST(test_links_that_change),
        TEST(test_changes),
    };
    if (geteuid() != 0) {
        print_message("SKIP: a root of one's own needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

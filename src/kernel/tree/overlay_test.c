/* SPDX-License-Identifier: Apache-2.0 */
/* Both modes give the same file system, and neither leaves a mount behind. */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/probe.h"
#include "kernel/tree/overlay.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BASE = 0x6ffd0000, ROUNDS = 3 };

static char top[] = "/var/tmp/cove-overlay-test.XXXXXX";

/* A failure in the child, which can't use cmocka: prints where, and is the exit code. */
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            print_message("%s:%d: %s (errno %d)\n", __func__, __LINE__, #what, errno);                                 \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static size_t mounts(void)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    size_t n = 0;
    if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &b) < 0)
        return SIZE_MAX;
    for (size_t i = 0; i < buf_len(&b); i++)
        n += buf_data(&b)[i] == '\n';
    return n;
}

/* A user namespace that maps 0 to BASE; its process waits to be killed. */
static int user_namespace(pid_t *ret_pid, int *ret_fd)
{
    AUTO_CLOSE int pidfd = -1;
    *ret_pid = namespace_spawn(-1, BASE, 0, &pidfd);
    if (*ret_pid == 0)
        for (;;)
            (void)pause();
    AUTO_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = *ret_pid < 0 ? *ret_pid : namespace_map_ids(proc, *ret_pid, BASE);
    return r ? r : namespace_open_user(proc, *ret_pid, ret_fd);
}

static int make_box(unsigned i, int *ret_fd)
{
    char name[32], part[40];
    (void)snprintf(name, sizeof(name), "box%u", i);
    CHECK(mkdir(name, 0755) == 0);
    (void)snprintf(part, sizeof(part), "%s/u", name);
    CHECK(mkdir(part, 0755) == 0);
    (void)snprintf(part, sizeof(part), "%s/w", name);
    CHECK(mkdir(part, 0755) == 0);
    *ret_fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(*ret_fd >= 0);
    return 0;
}

/* What is written as the sandbox's root stays in its own box, owned by root on disk; the lower layers are seen, topmost
 * first. */
static int use(unsigned i, int root)
{
    char path[64], to[32];
    struct stat st;
    (void)snprintf(to, sizeof(to), "root%u", i);
    CHECK(mkdir(to, 0755) == 0);
    CHECK(mount_attach(root, AT_FDCWD, to) == 0);
    (void)snprintf(path, sizeof(path), "%s/both", to);
    AUTO_BUF struct buf b = BUF_INIT(64);
    CHECK(fd_read_file(AT_FDCWD, path, &b) == 0 && str_eqc(buf_str(&b), "upper of the two"));
    (void)snprintf(path, sizeof(path), "%s/below", to);
    CHECK(stat(path, &st) == 0 && st.st_uid == BASE);
    CHECK(setresgid(BASE, BASE, 0) == 0 && setresuid(BASE, BASE, 0) == 0);
    (void)snprintf(path, sizeof(path), "%s/made", to);
    int made = mkdir(path, 0755);
    CHECK(setresuid(0, 0, 0) == 0 && setresgid(0, 0, 0) == 0);
    CHECK(made == 0);
    (void)snprintf(path, sizeof(path), "box%u/u/made", i);
    CHECK(stat(path, &st) == 0 && st.st_uid == 0);
    CHECK(access("lower0/made", F_OK) < 0 && access("lower1/made", F_OK) < 0);
    return 0;
}

static int mounts_in_child(const void *arg)
{
    const enum overlay_mode mode = *(const enum overlay_mode *)arg;
    AUTO_CLOSE int userns = -1;
    pid_t pid = 0;
    CHECK(mount_unshare() == 0);
    AUTO_FREE char *dir = mem_printf("%s/%d", top, (int)mode);
    (void)umask(022);
    CHECK(mkdir(dir, 0755) == 0 && chdir(dir) == 0 && mkdir("scratch", 0700) == 0);
    int lowers[OVERLAY_LAYERS_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(lowers); i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "lower%u", (unsigned)i);
        CHECK(mkdir(name, 0755) == 0);
        lowers[i] = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        CHECK(lowers[i] >= 0);
    }
    CHECK(fd_write_file(AT_FDCWD, "lower0/both", STR("upper of the two"), 0644) == 0);
    CHECK(fd_write_file(AT_FDCWD, "lower1/both", STR("lower of the two"), 0644) == 0);
    CHECK(fd_write_file(AT_FDCWD, "lower1/below", STR("x"), 0644) == 0);
    CHECK(user_namespace(&pid, &userns) == 0);
    int r = 0, not_made = -1, roots[ROUNDS] = {-1, -1, -1};
    size_t before = mounts();
    for (unsigned i = 0; r == 0 && i < ROUNDS; i++) {
        AUTO_CLOSE int box = -1;
        r = make_box(i, &box);
        /* Two, then all there can be. */
        const struct overlay o = {mode, lowers, i ? ARRAY_SIZE(lowers) : 2, box, userns, BASE, "scratch", false};
        struct overlay_parts parts = {.n = 0};
        int e = r ? 0 : overlay_mount(&o, &roots[i], i ? &parts : NULL, NULL);
        CHECK(parts.n == (i && mode == OVERLAY_DETACHED ? o.n_lower + 1 : 0));
        if (i == 1) /* the overlay has its own */
            overlay_parts_close(&parts);
        if (e < 0) {
            print_message("overlay_mount: %s\n", strerror(-e));
            r = 1;
        }
    }
    /* A box without its directories: the layers were mounted by then. */
    const struct overlay bad = {mode, lowers, 2, lowers[0], userns, BASE, "scratch", false};
    int refused = overlay_mount(&bad, &not_made, NULL, NULL);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    CHECK(r == 0 && refused < 0 && not_made == -1);
    CHECK(mounts() == before);
    for (unsigned i = 0; r == 0 && i < ROUNDS; i++) /* all three at the same time */
        r = use(i, roots[i]);
    return r;
}

static void test_mode(enum overlay_mode mode)
{
    const struct probe_env env = {top};
    int r = probe_overlay(&env, mode);
    if (r < 0) {
        print_message("this mode does not work here: %s\n", strerror(-r));
        skip();
    }
    size_t before = mounts();
    assert_int_equal(probe_in_child(mounts_in_child, &mode), 0);
    assert_int_equal(mounts(), before); /* nothing came through to where the child had its mounts from */
}

static void test_detached(void **state)
{
    (void)state;
    test_mode(OVERLAY_DETACHED);
}

static void test_attached(void **state)
{
    (void)state;
    test_mode(OVERLAY_ATTACHED);
}

static void test_the_mode_that_is_chosen_works(void **state)
{
    (void)state;
    const struct probe_env env = {top}, nowhere = {"/nonexistent"};
    enum overlay_mode mode = (enum overlay_mode)99;
    assert_int_equal(probe_overlay_mode(&nowhere, &mode), -ENOENT);
    assert_int_equal(mode, 99);
    int r = probe_overlay_mode(&env, &mode);
    if (r < 0) {
        print_message("no mode works here: %s\n", strerror(-r));
        skip();
    }
    assert_int_equal(probe_overlay(&env, mode), 0);
    if (mode == OVERLAY_ATTACHED)
        assert_true(probe_overlay(&env, OVERLAY_DETACHED) < 0);
}

static int make_top(void **state)
{
    (void)state;
    return mkdtemp(top) && chmod(top, 0755) == 0 ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    return tree_remove(AT_FDCWD, top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detached),
        cmocka_unit_test(test_attached),
        cmocka_unit_test(test_the_mode_that_is_chosen_works),
    };
    if (geteuid() != 0) {
        print_message("SKIP: mounting needs root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_top, remove_top);
}

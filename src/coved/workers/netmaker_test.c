/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "coved/workers/netmaker.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STOCK = 4, NOBODY = 0x6fff0002, PATIENCE_S = 20 };

static size_t open_files(void)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

/*
 * Whoever was killed may take longer to end than netmaker_stop() waits, and must be no child of this process for the
 * next test.
 */
static void stop(struct netmaker *m, struct coved_loop *loop)
{
    netmaker_stop(m);
    loop_free(loop);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    assert_int_equal(errno, ECHILD);
}

/* Only child of this process. */
static pid_t child(void)
{
    char path[64];
    int pid = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    char text[64] = "";
    if (fgets(text, sizeof(text), f))
        pid = (int)strtol(text, NULL, 10);
    (void)fclose(f);
    return pid;
}

static struct netns take(struct coved_loop *loop, struct netmaker *m)
{
    struct netns net = NETNS_NONE;
    usec_t end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
    int r;
    while ((r = netmaker_take(m, &net)) == -EAGAIN && clock_mono() < end) {
        usec_t next = netmaker_tick(m);
        assert_true(loop_turn(loop, MIN(next, end)) >= 0);
    }
    assert_int_equal(r, 0);
    return net;
}

static void stock(enum netns_kind kind)
{
    struct coved_loop *loop = NULL;
    struct netmaker *m = NULL;
    struct err err;
    size_t before = open_files();
    ino_t seen[3 * STOCK] = {0};
    assert_int_equal(loop_new(&loop), 0);
    assert_int_equal(netmaker_start(loop, NOBODY, kind, STOCK, &m, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
        struct stat st;
        struct netns net = take(loop, m);
        assert_int_equal(fstat(net.ns, &st), 0);
        seen[i] = st.st_ino;
        assert_true(net.tcp >= 0 && net.dns_udp >= 0 && net.dns_tcp >= 0);
        if (i == 0) { /* while it is open its number is nobody else's */
            struct netns other = take(loop, m);
            assert_int_equal(fstat(other.ns, &st), 0);
            assert_true(st.st_ino != seen[0]);
            netns_close(&other);
        }
        netns_close(&net);
    }
    stop(m, loop);
    assert_int_equal(open_files(), before);
}

static void test_stock(void **state)
{
    (void)state;
    stock(NETNS_CAPTURED);
}

static void test_stock_of_gates(void **state)
{
    (void)state;
    stock(NETNS_GATE);
    stock(NETNS_TAP);
}

static void test_the_child_is_confined(void **state)
{
    (void)state;
    struct coved_loop *loop = NULL;
    struct netmaker *m = NULL;
    struct err err;
    char path[64], line[128];
    bool is_filtered = false;
    assert_int_equal(loop_new(&loop), 0);
    assert_int_equal(netmaker_start(loop, NOBODY, NETNS_CAPTURED, STOCK, &m, &err), 0);
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)child());
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        is_filtered |= strcmp(line, "Seccomp:\t2\n") == 0;
    (void)fclose(f);
    assert_true(is_filtered);
    stop(m, loop);
}

static void test_time_to_take(void **state)
{
    (void)state;
    struct coved_loop *loop = NULL;
    struct netmaker *m = NULL;
    struct err err;
    assert_int_equal(loop_new(&loop), 0);
    assert_int_equal(netmaker_start(loop, NOBODY, NETNS_CAPTURED, STOCK, &m, &err), 0);
    usec_t all = 0;
    for (int i = 0; i < 20; i++) {
        struct netns net = take(loop, m);
        netns_close(&net);
        usec_t end = clock_mono() + 50 * USEC_PER_MS;
        while (clock_mono() < end) { /* until the stock is full */
            usec_t next = netmaker_tick(m);
            (void)!loop_turn(loop, MIN(next, end));
        }
        usec_t from = clock_mono();
        struct netns again = take(loop, m);
        all += clock_mono() - from;
        netns_close(&again);
    }
    print_message("taking one: %.1f us\n", (double)all / 20);
    stop(m, loop);
}

static void test_a_child_that_died_is_replaced(void **state)
{
    (void)state;
    struct coved_loop *loop = NULL;
    struct netmaker *m = NULL;
    struct err err;
    assert_int_equal(loop_new(&loop), 0);
    assert_int_equal(netmaker_start(loop, NOBODY, NETNS_CAPTURED, STOCK, &m, &err), 0);
    for (int i = 0; i < 3; i++) {
        pid_t old = child();
        assert_true(old > 0);
        assert_int_equal(kill(old, SIGKILL), 0);
        for (size_t j = 0; j < 2 * STOCK; j++) {
            struct netns net = take(loop, m);
            netns_close(&net);
        }
        assert_true(child() != old);
    }
    stop(m, loop);
}

/* In a process of its own: the filter stays. */
static void test_a_kernel_that_can_not(void **state)
{
    (void)state;
    const struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_NETFILTER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_SIZE(filter), (struct sock_filter *)(uintptr_t)filter};
    pid_t pid = fork();
    if (pid == 0) {
        struct coved_loop *loop = NULL;
        struct netmaker *m = NULL;
        struct err err;
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 || loop_new(&loop) < 0)
            _exit(1);
        if (netmaker_start(loop, NOBODY, NETNS_CAPTURED, STOCK, &m, &err) == 0)
            _exit(2);
        _exit(err.errnum == EOPNOTSUPP && waitpid(-1, NULL, WNOHANG) < 0 ? 0 : 3);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stock),
        cmocka_unit_test(test_stock_of_gates),
        cmocka_unit_test(test_the_child_is_confined),
        cmocka_unit_test(test_time_to_take),
        cmocka_unit_test(test_a_child_that_died_is_replaced),
        cmocka_unit_test(test_a_kernel_that_can_not),
    };
    if (geteuid() != 0) {
        print_message("SKIP: making network namespaces needs root\n");
        return 77;
    }
    struct coved_loop *loop = NULL;
    struct netmaker *m = NULL;
    struct err err;
    if (loop_new(&loop) < 0)
        return 1;
    if (netmaker_start(loop, NOBODY, NETNS_CAPTURED, 1, &m, &err) < 0) {
        print_message("SKIP: %s\n", err.msg);
        return 77;
    }
    stop(m, loop);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

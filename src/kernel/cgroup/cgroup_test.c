/* SPDX-License-Identifier: Apache-2.0 */
/* Against the machine's own control groups, of each version that it has; in a parent group of the test's own. */
#include "base/fd.h"
#include "kernel/cgroup/cgroup_internal.h"

#include <fcntl.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static struct cgroup_tree *open_tree_of(int version)
{
    struct cgroup_tree *t = NULL;
    char name[CGROUP_NAME_MAX];
    (void)snprintf(name, sizeof(name), "cove-test-%d", (int)getpid());
    int r = cgroup_open(name, version, &t);
    if (r < 0) {
        print_message("control groups version %d: %s\n", version, strerror(-r));
        skip();
    }
    return t;
}

static pid_t start_sleeper(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(30);
        for (;;)
            (void)pause();
    }
    assert_true(pid > 0);
    return pid;
}

static void end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void remove_when_empty(struct cgroup_tree *t, const char *name)
{
    int r = -EBUSY;
    for (int i = 0; i < 1000 && r == -EBUSY; i++) {
        r = cgroup_remove(t, name);
        if (r == -EBUSY)
            (void)poll(NULL, 0, 2);
    }
    assert_int_equal(r, 0);
}

static void life_of_a_group(int version)
{
    struct cgroup_tree *t = open_tree_of(version);
    const struct cgroup_limits limits = {.memory_bytes = 64 << 20, .cpu_milli = 500, .pids = 10}, none = {0};
    struct cgroup_usage usage;
    assert_int_equal(cgroup_make(t, "a"), 0);
    assert_int_equal(cgroup_make(t, "a"), 0);
    assert_int_equal(cgroup_limit(t, "a", &limits), 0);
    pid_t pid = start_sleeper();
    assert_int_equal(cgroup_attach(t, "a", pid), 0);
    assert_int_equal(cgroup_usage(t, "a", &usage), 0);
    assert_int_equal(usage.pids, 1);
    assert_int_equal(usage.pids_refused, 0);
    assert_int_equal(usage.oom_kills, 0);
    assert_int_equal(cgroup_remove(t, "a"), -EBUSY);
    assert_int_equal(cgroup_limit(t, "a", &none), 0);
    end(pid);
    remove_when_empty(t, "a");
    assert_int_equal(cgroup_remove(t, "a"), 0);
    assert_true(cgroup_usage(t, "a", &usage) < 0);
    cgroup_close(t, true);
}

/* Starts children that it does not wait for, as many as it may have, when told to. Its exit code is the number of those
 * that it could not have. */
static pid_t start_breeder(int *ret_go)
{
    int p[2];
    char byte;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int refused = 0;
        (void)alarm(30);
        if (read(p[0], &byte, 1) != 1)
            _exit(255);
        for (int i = 0; i < 20; i++) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            refused += child < 0;
        }
        _exit(refused);
    }
    assert_true(pid > 0);
    (void)close(p[0]);
    *ret_go = p[1];
    return pid;
}

static void refusals_in_a_group(int version, bool of_all)
{
    struct cgroup_tree *t = open_tree_of(version);
    const struct cgroup_limits limits = {.pids = 8};
    struct cgroup_usage before, after;
    int go = -1, status;
    if (!cgroup_features(t)->pids) {
        cgroup_close(t, true);
        skip();
    }
    assert_int_equal(cgroup_make(t, "p"), 0);
    assert_int_equal(of_all ? cgroup_limit_all(t, 8) : cgroup_limit(t, "p", &limits), 0);
    pid_t pid = start_breeder(&go);
    assert_int_equal(cgroup_attach(t, "p", pid), 0);
    assert_int_equal(cgroup_usage(t, "p", &before), 0);
    assert_int_equal(before.pids_refused, 0);
    assert_int_equal(write(go, "y", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(cgroup_usage(t, "p", &after), 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 20 - 7);
    assert_int_equal(after.pids_refused, of_all ? after.pids_refused : (unsigned)WEXITSTATUS(status));
    (void)close(go);
    remove_when_empty(t, "p");
    cgroup_close(t, true);
}

static void test_refusals_v1(void **state)
{
    (void)state;
    refusals_in_a_group(1, false);
    refusals_in_a_group(1, true);
}

static void test_refusals_v2(void **state)
{
    (void)state;
    refusals_in_a_group(2, false);
    refusals_in_a_group(2, true);
}

/* Of version 1, where all groups of a name lie in one directory for the controller. */
static void file_of_memory(char *to, size_t size, const char *name, const char *file)
{
    (void)snprintf(to, size, "/sys/fs/cgroup/memory/cove-test-%d/%s/%s", (int)getpid(), name, file);
}

static uint64_t read_number(const char *path)
{
    char text[32] = "";
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    return strtoull(text, NULL, 10);
}

/* Sends to itself, until nothing more gets through, what is never read; returns how many MiB the kernel holds of it. */
static unsigned fill_sockets(void)
{
    enum { SOCKETS = 900, ENOUGH_MB = 96 };
    static const char block[60000];
    const int large = 1 << 20; /* or as much as a user may have */
    uint64_t held = 0;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < SOCKETS && held < ENOUGH_MB << 20; i++) {
        socklen_t n = sizeof(a), memory_n;
        uint32_t memory[SK_MEMINFO_VARS] = {0}, before;
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        a.sin_port = 0;
        if (s < 0 || setsockopt(s, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large)) < 0 ||
            bind(s, (struct sockaddr *)&a, n) < 0 || getsockname(s, (struct sockaddr *)&a, &n) < 0)
            break;
        do {
            before = memory[SK_MEMINFO_RMEM_ALLOC];
            memory_n = sizeof(memory);
            if (sendto(s, block, sizeof(block), 0, (struct sockaddr *)&a, n) < 0 ||
                getsockopt(s, SOL_SOCKET, SO_MEMINFO, memory, &memory_n) < 0)
                break;
        } while (memory[SK_MEMINFO_RMEM_ALLOC] > before);
        held += memory[SK_MEMINFO_RMEM_ALLOC];
    }
    return (unsigned)(held >> 20);
}

static void test_sockets_v1(void **state)
{
    (void)state;
    static const struct {
        uint64_t memory_mb, sockets_mb;
    } cases[] = {{64, 32}, {256, 32}, {512, 64}, {1024, 128}, {65536, 128}};
    struct cgroup_tree *t = open_tree_of(1);
    char path[160];
    int status;
    assert_int_equal(cgroup_make(t, "s"), 0);
    file_of_memory(path, sizeof(path), "s", "memory.kmem.tcp.limit_in_bytes");
    if (access(path, F_OK) < 0) {
        assert_int_equal(cgroup_limit(t, "s", &(struct cgroup_limits){.memory_bytes = 64 << 20}), 0);
        remove_when_empty(t, "s");
        cgroup_close(t, true);
        print_message("%s is not here\n", path);
        skip();
    }
    uint64_t none = read_number(path);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct cgroup_limits limits = {.memory_bytes = cases[i].memory_mb << 20};
        assert_int_equal(cgroup_limit(t, "s", &limits), 0);
        assert_int_equal(read_number(path), cases[i].sockets_mb << 20);
    }
    const struct cgroup_limits of_many = {.memory_bytes = 64 << 20, .serves_many = true};
    assert_int_equal(cgroup_limit(t, "s", &of_many), 0);
    assert_int_equal(read_number(path), none);
    assert_int_equal(cgroup_limit(t, "s", &(struct cgroup_limits){0}), 0);
    assert_int_equal(read_number(path), none);

    assert_int_equal(cgroup_limit(t, "s", &(struct cgroup_limits){.memory_bytes = 64 << 20}), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(30);
        _exit(cgroup_attach(t, "s", 0) == 0 ? (int)fill_sockets() : 255);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    print_message("%d MiB\n", WEXITSTATUS(status));
    assert_in_range(WEXITSTATUS(status), 8, 40);
    remove_when_empty(t, "s");
    cgroup_close(t, true);
}

static void test_life_v1(void **state)
{
    (void)state;
    life_of_a_group(1);
}

static void test_life_v2(void **state)
{
    (void)state;
    life_of_a_group(2);
}

static int write_to(const char *path, const char *text)
{
    return fd_write_existing(AT_FDCWD, path, str_of(text));
}

/* As in a container: in a namespace whose top is a group with this process and another one in it. */
static int from_within(void)
{
    static const struct cgroup_limits limits = {.memory_bytes = 64 << 20, .cpu_milli = 500, .pids = 10};
    struct cgroup_tree *t = NULL;
    struct cgroup_usage usage;
    if (unshare(CLONE_NEWCGROUP | CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        umount2("/sys/fs/cgroup", MNT_DETACH) < 0 || mount("groups", "/sys/fs/cgroup", "cgroup2", 0, NULL) < 0)
        return 2;
    if (write_to("/sys/fs/cgroup/cgroup.subtree_control", "+memory") != -EBUSY)
        return 3; /* it is the machine's real top */
    if (cgroup_open("cove-test", 0, &t) < 0)
        return 4;
    const struct cgroup_features *f = cgroup_features(t);
    if (f->version != 2 || !f->memory || !f->cpu || !f->pids)
        return 5;
    if (cgroup_make(t, "a") < 0 || cgroup_limit(t, "a", &limits) < 0 || cgroup_attach(t, "a", 0) < 0 ||
        cgroup_usage(t, "a", &usage) < 0 || usage.pids != 1)
        return 6;
    return 0; /* what it made is removed from without */
}

static void test_a_container_v2(void **state)
{
    (void)state;
    static const char *const made[] = {"/cove-test/a", "/cove-test", "/init", ""};
    struct cgroup_tree *t = open_tree_of(2);
    char top[64], path[128];
    int status, r = -1;
    (void)snprintf(top, sizeof(top), "/sys/fs/cgroup/cove-test-%d/top", (int)getpid());
    assert_int_equal(cgroup_make(t, "top"), 0);
    pid_t other = start_sleeper();
    assert_int_equal(cgroup_attach(t, "top", other), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cgroup_attach(t, "top", 0) < 0 ? 1 : from_within());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)snprintf(path, sizeof(path), "%s/init/cgroup.procs", top);
    assert_int_equal(read_number(path), other);
    end(other);
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", top, made[i]);
        for (int n = 0; n < 1000 && (r = rmdir(path)) < 0 && errno == EBUSY; n++)
            (void)poll(NULL, 0, 2);
        assert_int_equal(r, 0);
    }
    cgroup_close(t, true);
}

static void assert_of_service(const char *text, const char *path)
{
    struct str found = STR_NULL;
    int r = cgroup_of_service(str_of(text), &found);
    assert_int_equal(r, path ? 0 : -ENOENT);
    assert_true(path ? str_eqc(found, path) : !found.p);
}

static void test_whose_group_it_is(void **state)
{
    (void)state;
    assert_of_service("0::/system.slice/cove.service\n", "/system.slice/cove.service");
    assert_of_service("0::/system.slice/cove.service", "/system.slice/cove.service");
    assert_of_service("0::/user.slice/user-7.slice/user@7.service/app.slice/c\\x2d.service\n",
                      "/user.slice/user-7.slice/user@7.service/app.slice/c\\x2d.service");
    assert_of_service("0::/\n", NULL);                                        /* the top of what a container sees */
    assert_of_service("0::/user.slice/user-0.slice/session-1.scope\n", NULL); /* others live there, too */
    assert_of_service("0::/system.slice/cove.service/other\n", NULL);         /* not its own group */
    assert_of_service("0::/system.slice/cove.service/init\n",
                      "/system.slice/cove.service");  /* where we put ourselves */
    assert_of_service("0::/../cove.service\n", NULL); /* outside of what is seen */
    assert_of_service("0::/system.slice/cove.service (deleted)\n", NULL);
    assert_of_service("3:memory:/system.slice/cove.service\n", NULL);
    assert_of_service("1:name=systemd:/system.slice/cove.service\n0::/system.slice/cove.service\n", NULL);
    assert_of_service("0::/system.slice/cove.service\n1:memory:/\n", NULL);
    assert_of_service("0::cove.service\n", NULL);
    assert_of_service("\n", NULL);
    assert_of_service("", NULL);
}

/* In a group that is a service's; another process is in it, too. */
static int of_a_service(const char *top)
{
    static const struct cgroup_limits limits = {.memory_bytes = 64 << 20, .cpu_milli = 500, .pids = 10};
    char dir[CGROUP_PATH_MAX];
    struct cgroup_tree *t = NULL;
    struct cgroup_usage usage;
    if (cgroup_delegated(dir) != -ENOENT)
        return 2; /* nobody has given it */
    if (setxattr(top, "trusted.delegate", "0", 1, 0) < 0 || cgroup_delegated(dir) != -ENOENT)
        return 3;
    if (setxattr(top, "trusted.delegate", "1", 1, 0) < 0 || cgroup_delegated(dir) < 0 || strcmp(dir, top) != 0)
        return 4;
    if (cgroup_open_in(dir, "cove-test", &t) < 0)
        return 5;
    const struct cgroup_features *f = cgroup_features(t);
    if (f->version != 2 || !f->memory || !f->cpu || !f->pids)
        return 6;
    if (cgroup_make(t, "a") < 0 || cgroup_limit(t, "a", &limits) < 0 || cgroup_attach(t, "a", 0) < 0 ||
        cgroup_usage(t, "a", &usage) < 0 || usage.pids != 1)
        return 7;
    return cgroup_delegated(dir) == -ENOENT ? 0 : 8;
}

static void test_a_service_v2(void **state)
{
    (void)state;
    static const char *const made[] = {"/cove-test/a", "/cove-test", "/init", ""};
    struct cgroup_tree *t = open_tree_of(2);
    char top[64], path[128];
    int status, r = -1;
    (void)snprintf(top, sizeof(top), "/sys/fs/cgroup/cove-test-%d/x.service", (int)getpid());
    assert_int_equal(cgroup_make(t, "x.service"), 0);
    pid_t other = start_sleeper();
    assert_int_equal(cgroup_attach(t, "x.service", other), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cgroup_attach(t, "x.service", 0) < 0 ? 1 : of_a_service(top));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)snprintf(path, sizeof(path), "%s/init/cgroup.procs", top);
    assert_int_equal(read_number(path), other);
    end(other);
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", top, made[i]);
        for (int n = 0; n < 1000 && (r = rmdir(path)) < 0 && errno == EBUSY; n++)
            (void)poll(NULL, 0, 2);
        assert_int_equal(r, 0);
    }
    cgroup_close(t, true);
}

static void test_kill_takes_all(void **state)
{
    (void)state;
    struct cgroup_tree *t = open_tree_of(0);
    assert_int_equal(cgroup_make(t, "k"), 0);
    pid_t pids[8];
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        pids[i] = start_sleeper();
        assert_int_equal(cgroup_attach(t, "k", pids[i]), 0);
    }
    /* They are our children, so they stay in the group until they are reaped: a reaper of their own. */
    pid_t reaper = fork();
    if (reaper == 0)
        _exit(cgroup_kill(t, "k") == 0 ? 0 : 1);
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_int_equal(status, 0);
    remove_when_empty(t, "k");
    cgroup_close(t, true);
}

static void wait_until_frozen(struct cgroup_tree *t, const char *name,
                              int (*is_frozen)(struct cgroup_tree *t, const char *name), int wanted)
{
    int r = !wanted;
    for (int i = 0; i < 1000 && r != wanted; i++) {
        r = is_frozen(t, name);
        assert_true(r >= 0);
        if (r != wanted)
            (void)poll(NULL, 0, 2);
    }
    assert_int_equal(r, wanted);
}

static void wait_for_frozen(struct cgroup_tree *t, const char *name, int wanted)
{
    wait_until_frozen(t, name, cgroup_is_frozen, wanted);
}

static size_t count_in(struct cgroup_tree *t, bool in_part)
{
    AUTO_BUF struct buf pids = BUF_INIT(4096);
    struct str rest, line;
    size_t n = 0;
    assert_int_equal(cgroup_part_processes(t, "p", in_part, &pids), 0);
    for (rest = buf_str(&pids); str_split(&rest, '\n', &line);)
        n += line.n > 0;
    return n;
}

/* The other tells each byte that it is sent. */
static void assert_runs(int sock, bool runs)
{
    char byte = 'x';
    struct pollfd p = {.fd = sock, .events = POLLIN};
    if (runs)
        assert_int_equal(write(sock, &byte, 1), 1);
    assert_int_equal(poll(&p, 1, runs ? 10000 : 50), runs);
    if (runs)
        assert_int_equal(read(sock, &byte, 1), 1);
}

static pid_t start_echo(struct cgroup_tree *t, int *ret_sock)
{
    int s[2];
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(s[0]);
        (void)alarm(30);
        while (read(s[1], &byte, 1) == 1 && write(s[1], &byte, 1) == 1)
            ;
        _exit(0);
    }
    (void)close(s[1]);
    *ret_sock = s[0];
    assert_int_equal(cgroup_attach(t, "p", pid), 0);
    return pid;
}

static void test_a_part_is_frozen(void **state)
{
    (void)state;
    struct cgroup_tree *t = open_tree_of(0);
    if (!cgroup_features(t)->freeze) {
        cgroup_close(t, true);
        print_message("no freezer\n");
        skip();
    }
    int runs = -1, stands = -1;
    assert_int_equal(cgroup_make(t, "p"), 0);
    assert_false(cgroup_part_is_there(t, "p"));
    assert_int_equal(cgroup_part_make(t, "p"), 0);
    assert_int_equal(cgroup_part_make(t, "p"), 0);
    assert_true(cgroup_part_is_there(t, "p"));
    const pid_t first = start_echo(t, &runs), second = start_echo(t, &stands);
    assert_int_equal(cgroup_part_move(t, "p", second, true), 0);
    assert_int_equal(count_in(t, true), 1);
    assert_int_equal(count_in(t, false), 1);
    assert_runs(stands, true);
    assert_int_equal(cgroup_part_freeze(t, "p", true), 0);
    wait_until_frozen(t, "p", cgroup_part_is_frozen, 1);
    assert_int_equal(cgroup_is_frozen(t, "p"), 0);
    assert_runs(runs, true);
    assert_int_equal(write(stands, "x", 1), 1);
    assert_runs(stands, false);

    /* Who enters it then is frozen, too, and goes on where it is taken out. */
    assert_int_equal(cgroup_part_move(t, "p", first, true), 0);
    wait_until_frozen(t, "p", cgroup_part_is_frozen, 1);
    assert_int_equal(write(runs, "x", 1), 1);
    assert_runs(runs, false);
    assert_int_equal(cgroup_part_move(t, "p", first, false), 0);
    assert_runs(runs, true);
    assert_int_equal(cgroup_remove(t, "p"), -EBUSY);

    const pid_t reaper = fork();
    if (reaper == 0)
        _exit(cgroup_kill(t, "p") == 0 ? 0 : 1);
    const pid_t pids[] = {first, second, reaper};
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, i < 2 ? SIGKILL : 0);
    }
    remove_when_empty(t, "p");
    assert_false(cgroup_part_is_there(t, "p"));
    (void)close(runs);
    (void)close(stands);
    cgroup_close(t, true);
}

static void test_frozen_and_thawed(void **state)
{
    (void)state;
    struct cgroup_tree *t = open_tree_of(0);
    if (!cgroup_features(t)->freeze) {
        cgroup_close(t, true);
        print_message("no freezer\n");
        skip();
    }
    assert_int_equal(cgroup_make(t, "f"), 0);
    pid_t pid = start_sleeper();
    assert_int_equal(cgroup_attach(t, "f", pid), 0);
    assert_int_equal(cgroup_is_frozen(t, "f"), 0);
    assert_int_equal(cgroup_freeze(t, "f", true), 0);
    wait_for_frozen(t, "f", 1);
    assert_int_equal(cgroup_yield_memory(t, "f", true), 0);
    assert_int_equal(cgroup_yield_memory(t, "f", false), 0);
    assert_int_equal(cgroup_freeze(t, "f", false), 0);
    wait_for_frozen(t, "f", 0);

    assert_int_equal(cgroup_freeze(t, "f", true), 0);
    wait_for_frozen(t, "f", 1);
    pid_t reaper = fork();
    if (reaper == 0)
        _exit(cgroup_kill(t, "f") == 0 ? 0 : 1); /* the way in which what is frozen is killed after a crash */
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(waitpid(reaper, &status, 0), reaper);
    assert_int_equal(status, 0);
    remove_when_empty(t, "f");
    assert_true(cgroup_is_frozen(t, "f") < 0);
    cgroup_close(t, true);
}

enum { FILE_MB = 16, OWN_MB = 16 };

/* With FILE_MB of a file in its page cache and OWN_MB of its own. What it had is there when it is told to go on. */
static pid_t start_holder(struct cgroup_tree *t, const char *name, int file, int *ret_go)
{
    int s[2];
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static char block[1 << 20];
        char *own = mmap(NULL, OWN_MB << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        bool ok = own != MAP_FAILED && cgroup_attach(t, name, 0) == 0;
        (void)alarm(30);
        for (int i = 0; ok && i < FILE_MB; i++)
            ok = write(file, block, sizeof(block)) == sizeof(block);
        ok = ok && fsync(file) == 0;
        for (int i = 0; ok && i < OWN_MB << 20; i += 4096)
            own[i] = (char)(i >> 12 | 1);
        ok = ok && write(s[1], "x", 1) == 1 && read(s[1], &byte, 1) == 1;
        for (int i = 0; ok && i < OWN_MB << 20; i += 4096)
            ok = own[i] == (char)(i >> 12 | 1);
        _exit(ok ? 0 : 1);
    }
    (void)close(s[1]);
    assert_int_equal(read(s[0], &byte, 1), 1);
    *ret_go = s[0];
    return pid;
}

static void test_memory_is_taken(void **state)
{
    (void)state;
    struct cgroup_tree *t = open_tree_of(0);
    struct cgroup_usage before, after;
    int status;
    AUTO_CLOSE int file = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (!cgroup_features(t)->reclaim || !cgroup_features(t)->freeze || file < 0) {
        cgroup_close(t, true);
        print_message("no reclaiming\n");
        skip();
    }
    assert_int_equal(cgroup_make(t, "m"), 0);
    AUTO_CLOSE int go = -1;
    pid_t pid = start_holder(t, "m", file, &go);
    assert_int_equal(cgroup_freeze(t, "m", true), 0);
    wait_for_frozen(t, "m", 1);
    assert_int_equal(cgroup_yield_memory(t, "m", true), 0);
    assert_int_equal(cgroup_usage(t, "m", &before), 0);
    assert_true(before.memory_bytes >= (FILE_MB + OWN_MB) << 20);
    assert_int_equal(cgroup_reclaim(t, "m"), 0);
    assert_int_equal(cgroup_usage(t, "m", &after), 0);
    assert_true(after.memory_bytes + (FILE_MB / 2 << 20) < before.memory_bytes);
    assert_int_equal(cgroup_yield_memory(t, "m", false), 0);
    assert_int_equal(cgroup_freeze(t, "m", false), 0);
    assert_int_equal(write(go, "y", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    int ignored UNUSED = cgroup_reclaim(t, "m");
    remove_when_empty(t, "m");
    assert_true(cgroup_reclaim(t, "m") < 0);
    cgroup_close(t, true);
}

static void note(void *ctx, const char *name)
{
    if (strcmp(name, "x") == 0)
        *(bool *)ctx = true;
}

static void test_groups_are_listed(void **state)
{
    (void)state;
    struct cgroup_tree *t = open_tree_of(0);
    bool found = false;
    assert_int_equal(cgroup_make(t, "x"), 0);
    assert_int_equal(cgroup_each(t, note, &found), 0);
    assert_true(found);
    remove_when_empty(t, "x");
    cgroup_close(t, true);
}

static void test_names_that_are_too_long(void **state)
{
    (void)state;
    struct cgroup_tree *t = NULL;
    assert_int_equal(cgroup_open("0123456789012345678901234567890123456789", 0, &t), -ENAMETOOLONG);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life_v1),           cmocka_unit_test(test_life_v2),
        cmocka_unit_test(test_refusals_v1),       cmocka_unit_test(test_refusals_v2),
        cmocka_unit_test(test_a_container_v2),    cmocka_unit_test(test_whose_group_it_is),
        cmocka_unit_test(test_a_service_v2),      cmocka_unit_test(test_kill_takes_all),
        cmocka_unit_test(test_frozen_and_thawed), cmocka_unit_test(test_a_part_is_frozen),
        cmocka_unit_test(test_groups_are_listed), cmocka_unit_test(test_names_that_are_too_long),
        cmocka_unit_test(test_memory_is_taken),   cmocka_unit_test(test_sockets_v1),
    };
    if (geteuid() != 0) {
        print_message("SKIP: control groups need root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

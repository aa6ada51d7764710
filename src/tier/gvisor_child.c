/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs as a copy of coved, then as runsc, which is PID 1 here, or as its parent: its sentry and its gofer are children
 * of PID 1 and end with it.
 *
 *  1. All of it lives in a user namespace over the sandbox's own range of ids: neither runsc nor what breaks out of the
 *     sentry has a right on the host that a container's root has not. What runsc confines them with beyond that is its
 *     own.
 *  2. Its root is a small tmpfs with the sandbox's root file system, the agent, and nothing of the host.
 *  3. The network namespace is its own, with the link of a gate (kernel/netns.h), from which the sentry takes the
 *     addresses.
 */
#include "tier/gvisor_child.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/fd.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/netns.h"
#include "tier/tier.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    GVISOR_CONTROL = TIER_BODY_SOCK,
    GVISOR_AGENT,
    GVISOR_RUNSC,
    GVISOR_MEMORY,
    GVISOR_SIGNALS = 64,
    GVISOR_AHEAD_PART = 16,
    GVISOR_LIST_MAX = 16 << 20,
    GVISOR_AGENT_MAX = 64 << 20
};

#define GVISOR_GIVEN "/proc/self/fd/6" /* GVISOR_MEMORY */
#define GVISOR_IMAGE "/image"          /* the same, with a pipe in it */
#define GVISOR_STATE "checkpoint.img"
#define GVISOR_PAGES "pages.img"
#define GVISOR_LIST "pages_meta.img"

static void gvisor_settle(int sock, int agent_fd, int runsc_fd)
{
    const int from[] = {sock, agent_fd, runsc_fd};
    int spare[ARRAY_SIZE(from)];
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        if ((spare[i] = fcntl(from[i], F_DUPFD, 64)) < 0)
            _exit(1);
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        if (dup3(spare[i], GVISOR_CONTROL + (int)i, O_CLOEXEC) < 0)
            _exit(1);
    if (close_range(GVISOR_RUNSC + 1, ~0U, 0) < 0)
        _exit(1);
    for (int s = 1; s <= GVISOR_SIGNALS; s++)
        (void)signal(s, SIG_DFL);
    child_unblock();
}

static void gvisor_copy_agent(const char *to)
{
    AUTO_CLOSE int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0555);
    tier_body_must(fd < 0 ? -errno : 0, "make the agent's file");
    off_t at = 0;
    for (ssize_t n = 1; n > 0;) {
        n = sendfile(fd, GVISOR_AGENT, &at, GVISOR_AGENT_MAX);
        tier_body_must(n < 0 ? -errno : 0, "copy the agent");
    }
}

/* Capabilities inside are the sentry's to give: all that a container's root has, and what needs no host. */
static void gvisor_write_bundle(const char *name)
{
    static const char caps[] =
        "\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_FOWNER\",\"CAP_FSETID\",\"CAP_KILL\",\"CAP_SETGID\",\"CAP_SETUID\","
        "\"CAP_SETPCAP\",\"CAP_SETFCAP\",\"CAP_NET_BIND_SERVICE\",\"CAP_SYS_CHROOT\",\"CAP_SYS_ADMIN\""; /* the last: the agent's alone, for the host name after a restore, and so that nothing else may trace it */
    AUTO_BUF struct buf b = BUF_INIT(8192);
    (void)buf_printf(
        &b,
        "{\"ociVersion\":\"1.0.0\",\"hostname\":\"%s\",\"root\":{\"path\":\"/root\"},\"process\":{\"user\":"
        "{\"uid\":0,\"gid\":0},\"cwd\":\"/\",\"args\":[\"/run/cove/agent/agent\",\"--stdin\"],\"env\":[\"PATH=/usr/"
        "local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\",\"LANG=C.UTF-8\"],\"capabilities\":{"
        "\"bounding\":[%s],\"effective\":[%s],\"permitted\":[%s],\"inheritable\":[]}},",
        name, caps, caps, caps);
    /* Over an empty /tmp runsc would lay a tmpfs of its own, unless it is told of a mount. What is there is the
     * sandbox's: a link would lead elsewhere. */
    struct stat tmp;
    const bool has_tmp = lstat("/root/tmp", &tmp) == 0 && S_ISDIR(tmp.st_mode);
    (void)buf_printf(
        &b,
        "\"mounts\":[%s{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
        "{\"destination\":\"/sys\",\"type\":\"sysfs\",\"source\":\"sysfs\",\"options\":[\"ro\"]},"
        "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"tmpfs\"},"
        "{\"destination\":\"/run/cove/agent\",\"type\":\"bind\",\"source\":\"/agent\",\"options\":[\"ro\"]}],"
        "\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"mount\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":\"network\",\"path\":\"/proc/self/ns/net\"}]}}",
        has_tmp ? "{\"destination\":\"/tmp\",\"type\":\"bind\",\"source\":\"/root/tmp\"}," : "");
    tier_body_must(fd_write_file(AT_FDCWD, "/bundle/config.json", buf_str(&b), 0400), "write the bundle");
}

static void gvisor_attach(const char *type, const char *const *options, const char *at)
{
    AUTO_CLOSE int fd = -1;
    tier_body_must(mount_new(type, options, MOUNT_ATTR_NODEV, &fd), type);
    tier_body_must(mount_attach(fd, AT_FDCWD, at), at);
}

/* Where runsc lives. `null` is the tree's, of which this process is in. */
static void gvisor_build(int root)
{
    static const char *const options[] = {"mode", "0755", "size", "64m", NULL};
    static const char *const dirs[] = {"proc", "tmp", "dev", "root", "agent", "bundle", "state"};
    AUTO_CLOSE int fd = -1;
    char path[64];
    tier_body_must(mount_new("tmpfs", options, MOUNT_ATTR_NOSUID, &fd), "make a root for runsc");
    tier_body_must(mount_attach(fd, AT_FDCWD, "/build/tmp"), "attach it");
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        (void)snprintf(path, sizeof(path), "/build/tmp/%s", dirs[i]);
        tier_body_must(mkdir(path, 0755) < 0 ? -errno : 0, path);
    }
    tier_body_must(fd_write_file(AT_FDCWD, "/build/tmp/dev/null", STR(""), 0666), "make a null device");
    tier_body_must(mount_bind("null", "/build/tmp/dev/null", false), "bind the null device");
    gvisor_attach("proc", NULL, "/build/tmp/proc");
    /* By a file in there, which by now each namespace has, runsc of 2022 would take ours for the host's. */
    tier_body_must(mount_bind("empty", "/build/tmp/proc/sys/net/core", true), "hide settings of the network");
    tier_body_must(mount_attach(root, AT_FDCWD, "/build/tmp/root"), "attach the root file system");
    tier_body_must(mount_pivot(fd), "enter it");
}

/* --allow-suid: sudo. --overlay2=none: what is written goes to the sandbox's own files, which a snapshot clones. */
NORETURN static void gvisor_execute(const char *const *options, const char *const *what, const char *name,
                                    int memory_fd)
{
    static const char *const fixed[] = {"runsc",           "--root=/state", "--ignore-cgroups",
                                        "--overlay2=none", "--allow-suid",  NULL};
    const char *argv[16] = {NULL};
    char *const envp[] = {(char[]){"PATH=/"}, (char[]){"HOME=/"}, NULL};
    size_t n = 0;
    for (const char *const *at = fixed; *at; at++)
        argv[n++] = *at;
    for (; *options; options++)
        argv[n++] = *options;
    for (; *what; what++)
        argv[n++] = *what;
    argv[n++] = "--bundle=/bundle";
    argv[n++] = name;
    int null = open("/dev/null", O_RDWR);
    if (dup2(GVISOR_CONTROL, 0) < 0 || null < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        _exit(1);
    if (memory_fd >= 0 && dup2(memory_fd, GVISOR_MEMORY) < 0)
        _exit(1);
    (void)syscall(SYS_close_range, memory_fd >= 0 ? GVISOR_MEMORY + 1 : GVISOR_MEMORY, ~0U, 0);
    (void)syscall(SYS_execveat, GVISOR_RUNSC, "", argv, envp, AT_EMPTY_PATH);
    _exit(1);
}

/*
 * What was started ahead is needed, all of it. From here on coved can't give it to anybody, whoever else has the
 * socket.
 */
static void gvisor_lost(int signal UNUSED)
{
    (void)shutdown(GVISOR_CONTROL, SHUT_RDWR);
    _exit(1);
}

/* Before that is executed here. What it starts is this process's, the first one here, then. */
static void gvisor_run_first(const char *const *options, const char *const *what, const char *name)
{
    pid_t pid = fork();
    if (pid == 0)
        gvisor_execute(options, what, name, -1);
    int r = pid < 0 ? -errno : child_wait(pid);
    tier_body_must(r > 0 ? -EIO : r, "start a sentry ahead");
    (void)signal(SIGCHLD, gvisor_lost);
    if (waitpid(-1, NULL, WNOHANG) > 0)
        gvisor_lost(SIGCHLD);
}

/* ---- ahead of need ---- */

/* Its first session stays there for the agent. */
static void gvisor_await_owner(void)
{
    char what;
    if (recv(GVISOR_CONTROL, &what, 1, MSG_PEEK) != 1)
        _exit(0);
    (void)signal(SIGCHLD, SIG_DFL);
}

/* What nobody may ever ask for takes a small part of the machine's memory at most. */
static bool gvisor_may_load(int memory_fd)
{
    struct stat pages, list;
    struct sysinfo machine;
    return fstatat(memory_fd, GVISOR_PAGES, &pages, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(memory_fd, GVISOR_LIST, &list, AT_SYMLINK_NOFOLLOW) == 0 && list.st_size > 0 &&
           list.st_size <= GVISOR_LIST_MAX && sysinfo(&machine) == 0 &&
           (uint64_t)pages.st_size <= (uint64_t)machine.totalram * machine.mem_unit / GVISOR_AHEAD_PART;
}

static void gvisor_make_image(void)
{
    static const char *const parts[] = {GVISOR_STATE, GVISOR_PAGES};
    char from[64], to[64];
    tier_body_must(mkdir(GVISOR_IMAGE, 0755) < 0 ? -errno : 0, "make a directory for saved memory");
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        (void)snprintf(from, sizeof(from), GVISOR_GIVEN "/%s", parts[i]);
        (void)snprintf(to, sizeof(to), GVISOR_IMAGE "/%s", parts[i]);
        tier_body_must(symlink(from, to) < 0 ? -errno : 0, to);
    }
    tier_body_must(mkfifo(GVISOR_IMAGE "/" GVISOR_LIST, 0400) < 0 ? -errno : 0, "make a pipe for saved memory");
}

/*
 * Returns in a child, for runsc. Gives it the list of pages through a pipe, but for its last byte, which comes with the
 * owner. Until then the sentry reads pages and state, and waits for the end of the list before anything runs.
 */
static void gvisor_hold(int memory_fd)
{
    int status = 0;
    pid_t pid = fork();
    tier_body_must(pid < 0 ? -errno : 0, "start what goes on from saved memory");
    if (pid == 0)
        return;
    AUTO_BUF struct buf list = BUF_INIT(GVISOR_LIST_MAX);
    int r = fd_read_file(memory_fd, GVISOR_LIST, &list);
    const int to = open(GVISOR_IMAGE "/" GVISOR_LIST, O_WRONLY | O_CLOEXEC);
    const size_t n = buf_len(&list);
    if (r < 0 || to < 0 || n == 0 || fd_write_all(to, buf_data(&list), n - 1) < 0)
        _exit(1);
    gvisor_await_owner();
    if (fd_write_all(to, buf_data(&list) + n - 1, 1) < 0)
        _exit(1);
    buf_fini(&list);
    (void)close_range(GVISOR_CONTROL, ~0U, 0);
    while (waitpid(-1, &status, 0) != pid)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

NORETURN void gvisor_child(int sock, const struct tier_host *host, const struct cgroup_door *door,
                           const struct box *box, const struct gvisor_runsc *runsc)
{
    char message[1 + TIER_NAME_MAX], name[TIER_NAME_MAX + 1] = "", path[32], what;
    const char *const options[] = {box->net.tcp >= 0 ? "--network=sandbox" : "--network=none",
                                   runsc->is_ptraced ? "--platform=ptrace" : "--platform=systrap", NULL};
    int got[2] = {-1, -1};
    size_t n_fds = 0;
    (void)snprintf(path, sizeof(path), "/trees/%u", box->tree);
    if (chdir(path) < 0)
        _exit(1);
    int joined = cgroup_door_enter(door);
    gvisor_settle(sock, host->agent_fd, runsc->fd);
    tier_body_must(joined, "join the control group");
    (void)prctl(PR_SET_NAME, "cove-blank", 0, 0, 0);
    (void)umask(022);
    if (recv(GVISOR_CONTROL, &what, 1, 0) != 1 || what != TIER_MAPPED)
        _exit(1);
    tier_body_must(namespace_become_root(), "become root inside");
    tier_body_must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ? -errno : 0, "tie to the keeper");
    if (box->net.tcp >= 0)
        tier_body_must(netns_gate_settle(), "set up the network");
    tier_body_tell(TIER_READY);

    if (fd_recv(GVISOR_CONTROL, message, sizeof(message), got, 2, &n_fds) != sizeof(message) || n_fds < 1)
        _exit(0); /* never needed: the service stops */
    memcpy(name, message + 1, TIER_NAME_MAX);
    gvisor_build(got[0]);
    gvisor_copy_agent("/agent/agent");
    gvisor_write_bundle(name);
    const int memory_fd = n_fds == 2 ? got[1] : -1;
    static const char *const run[] = {"run", NULL}, *const create[] = {"create", NULL};
    const bool loads_ahead = message[0] == TIER_AHEAD && gvisor_may_load(memory_fd);
    const char *const restore[] = {"restore", loads_ahead ? "--image-path=" GVISOR_IMAGE : "--image-path=" GVISOR_GIVEN,
                                   runsc->loads_late ? "--background" : NULL, NULL};
    if (loads_ahead)
        gvisor_make_image();
    if (message[0] == TIER_AHEAD)
        gvisor_run_first(options, create, name);
    tier_body_tell(TIER_RUNS);
    if (loads_ahead)
        gvisor_hold(memory_fd);
    else if (message[0] == TIER_AHEAD)
        gvisor_await_owner();
    gvisor_execute(options, memory_fd < 0 ? run : restore, name, memory_fd);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs as a copy of coved in the sandbox's namespaces, still with all capabilities in its user namespace. Everything it
 * was born with that is coved's must be gone before a program of the sandbox runs: descriptors (closed first), mounts
 * (pivot_root), signal mask and handlers, environment, capabilities, oom protection. Nothing here reads a file of the
 * sandbox's root.
 */
#include "tier/container_child.h"
#include "base/child.h"
#include "base/fd.h"
#include "kernel/caps.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/seccomp.h"
#include "tier/inside.h"
#include "tier/process.h"
#include "tier/stage.h"
#include "tier/tier.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CONTROL_FD = TIER_BODY_SOCK, AGENT_FD, OPEN_FILES_SOFT = 65536, OPEN_FILES_HARD = 524288 };

/* Only the control socket and the agent survive; 0 to 2 become the null device. */
static void settle_descriptors(int sock, int agent_fd)
{
    int spare_sock = fcntl(sock, F_DUPFD, 64), spare_agent = fcntl(agent_fd, F_DUPFD, 64);
    if (spare_sock < 0 || spare_agent < 0 || dup2(spare_sock, CONTROL_FD) < 0 ||
        dup3(spare_agent, AGENT_FD, O_CLOEXEC) < 0)
        _exit(1);
    int null = open("null", O_RDWR);
    for (int fd = 0; fd <= 2; fd++)
        tier_body_must(dup2(null, fd), "open the null device");
    if (close_range(AGENT_FD + 1, ~0U, 0) < 0)
        tier_body_fail("close descriptors", errno);
}

/*
 * Past the C library, which keeps two signals (32 and 33) to itself. Handlers end with this program, and the agent lets
 * nothing be ignored.
 */
static void unblock_signals(void)
{
    const uint64_t none = 0;
    if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none)) < 0)
        tier_body_fail("unblock signals", errno);
}

/* Each read of "locks" stops all locking of files on the machine. */
const struct container_cover container_covers[] = {
    {"kcore", COVER_FILE},
    {"keys", COVER_FILE},
    {"kallsyms", COVER_FILE},
    {"kmsg", COVER_FILE},
    {"timer_list", COVER_FILE},
    {"sysrq-trigger", COVER_FILE},
    {"latency_stats", COVER_FILE},
    {"sched_debug", COVER_FILE},
    {"cmdline", COVER_FILE},
    {"config.gz", COVER_FILE},
    {"cpuinfo", COVER_TOLD},
    {"loadavg", COVER_TOLD},
    {"meminfo", COVER_TOLD},
    {"stat", COVER_TOLD},
    {"acpi", COVER_DIRECTORY},
    {"scsi", COVER_DIRECTORY},
    {"asound", COVER_DIRECTORY},
    {"driver", COVER_DIRECTORY},
    {"fs", COVER_DIRECTORY},
    {"pressure", COVER_DIRECTORY},
    {"bus", COVER_READ_ONLY},
    {"irq", COVER_READ_ONLY},
    {"sys", COVER_READ_ONLY},
    {"locks", COVER_FILE},
    {NULL, COVER_FILE},
};

static void mask_proc(void)
{
    for (const struct container_cover *c = container_covers; c->name; c++) {
        char path[32];
        (void)snprintf(path, sizeof(path), "/build/proc/%s", c->name);
        const char *by = c->how == COVER_FILE        ? "null"
                         : c->how == COVER_DIRECTORY ? "empty"
                         : c->how == COVER_TOLD      ? path + strlen("/build/") /* of the tree: inside.h */
                                                     : path;
        int r = mount_bind(by, path, c->how == COVER_READ_ONLY);
        tier_body_must(r == -ENOENT && c->how != COVER_TOLD ? 0 : r, path);
    }
    tier_body_must(mount_bind("proc/boot_id", "/build/proc/sys/kernel/random/boot_id", false), "bind the boot id");
}

static void attach_new(const char *type, const char *const *options, uint64_t attrs, const char *to)
{
    AUTO_CLOSE int fd = -1;
    tier_body_must(mount_new(type, options, attrs, &fd), type);
    tier_body_must(mount_attach(fd, AT_FDCWD, to), to);
}

static void attach_tree(const char *from, uint64_t attrs, const char *to)
{
    AUTO_CLOSE int fd = -1;
    tier_body_must(mount_clone(AT_FDCWD, from, &fd), from);
    tier_body_must(mount_set(fd, attrs, -1), from);
    tier_body_must(mount_attach(fd, AT_FDCWD, to), to);
}

/* A mount that runtimes look for, and over it what they read: see invariant 4 of inside.h. Where there is none to be
 * had, they find the files alone. */
static void show_group(const struct inside_machine *machine, int version)
{
    const uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY;
    const char *const at = "/build/sys/fs/cgroup", *names;
    for (size_t k = 0; (names = inside_hierarchy(machine, version, k)); k++) {
        const char *options[2 * CGROUP_DOOR_MAX + 1] = {NULL};
        char text[64];
        (void)snprintf(text, sizeof(text), "%s", names);
        size_t n = 0;
        for (char *name = text; name && *name && n + 1 < ARRAY_SIZE(options); n += 2) {
            options[n] = name;
            name = strchr(name, ',');
            if (name)
                *name++ = 0;
        }
        AUTO_CLOSE int fd = -1;
        int ignored UNUSED = mount_new(version == 1 ? "cgroup" : "cgroup2", options, attrs, &fd) < 0
                                 ? 0
                                 : mount_attach(fd, AT_FDCWD, at);
    }
    attach_tree("sys/fs/cgroup", attrs, at);
}

static void build_mounts(const struct inside_machine *machine, int version)
{
    /*
     * max: all instances but the host's own share 3,072 terminals (kernel.pty.max less kernel.pty.reserve;
     * coved/boxes/boxes_terminals.c).
     */
    static const char *const pts_options[] = {"newinstance", NULL, "ptmxmode", "0666", "mode", "0620",
                                              "gid",         "5",  "max",      "64",   NULL};
    static const char *const shm_options[] = {"mode", "1777", NULL};
    const uint64_t plain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    /* What is bound from a mount that is read-only is so, too, without being told. */
    attach_tree(".", MOUNT_ATTR_RDONLY, "/build/tmp");
    tier_body_must(chdir("/build/tmp") < 0 ? -errno : 0, "enter the tree");
    attach_new("proc", NULL, plain, "/build/proc");
    mask_proc();
    attach_tree("dev", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY, "/build/dev");
    attach_new("devpts", pts_options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, "/build/dev/pts");
    attach_new("tmpfs", shm_options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, "/build/dev/shm");
    attach_new("mqueue", NULL, plain, "/build/dev/mqueue");
    attach_tree("sys", plain | MOUNT_ATTR_RDONLY, "/build/sys");
    show_group(machine, version);
}

static void await_mapped(void)
{
    char what;
    ssize_t n = recv(CONTROL_FD, &what, 1, 0);
    if (n != 1 || what != TIER_MAPPED)
        _exit(1);
}

static void become_blank(const struct tier_host *host, bool has_network)
{
    await_mapped();
    tier_body_must(namespace_become_root(), "become root inside");
    /* After the last change of ids, which would clear it. When both died before this line, the socket says so. */
    tier_body_must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "tie to the keeper");
    tier_body_must(unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0, "make a cgroup namespace");
    if (!has_network)
        tier_body_must(namespace_network(), "make a network namespace");
    build_mounts(host->stage->machine, cgroup_features(host->cgroups)->version);
    tier_body_tell(TIER_READY);
}

/* Detached mounts: of the root, and of what it was made of. Returns how many. */
static size_t await_dress(char ret_name[static TIER_NAME_MAX], int ret_fds[static FD_PASS_MAX])
{
    char message[1 + TIER_NAME_MAX];
    size_t n_fds = 0;
    ssize_t n = fd_recv(CONTROL_FD, message, sizeof(message), ret_fds, FD_PASS_MAX, &n_fds);
    if (n == 0)
        _exit(0); /* never needed: the service stops */
    if (n != sizeof(message) || message[0] != TIER_DRESS || n_fds < 1)
        tier_body_fail("the order to dress", EPROTO);
    memcpy(ret_name, message + 1, TIER_NAME_MAX);
    return n_fds;
}

/* What the root was made of goes with all that the pivot leaves behind, at once. */
static void enter_root(int root, const int *parts, size_t n_parts, const struct box *box)
{
    const char *what = "";
    static const char *const names[] = {"proc", "dev", "sys"};
    tier_body_must(mount_attach(root, AT_FDCWD, "/root"), "attach the root file system");
    int r = box->sees_host ? process_enter(root, &what) : 0;
    tier_body_must(r, what);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char from[32];
        (void)snprintf(from, sizeof(from), "/build/%s", names[i]);
        if (mkdirat(root, names[i], 0755) < 0 && errno != EEXIST) /* images need not have them */
            tier_body_fail(names[i], errno);
        tier_body_must(move_mount(AT_FDCWD, from, root, names[i], 0) < 0 ? -errno : 0, names[i]);
    }
    for (size_t i = 0; i < n_parts; i++) {
        tier_body_must(mount_attach(parts[i], AT_FDCWD, "/build/tmp"), "attach a layer");
        (void)fd_close(parts[i]);
    }
    tier_body_must(mount_pivot(root), "enter the root file system");
    (void)fd_close(root);
}

static void container_child_set_limits(void)
{
    static const struct {
        __rlimit_resource_t resource;
        struct rlimit limit;
    } limits[] = {
        {RLIMIT_NOFILE, {OPEN_FILES_SOFT, OPEN_FILES_HARD}},
        {RLIMIT_CORE, {1, 1}}, /* no core: see raise_limits() of coved/serve.c */
        {RLIMIT_MEMLOCK, {8 << 20, 8 << 20}},
        {RLIMIT_MSGQUEUE, {819200, 819200}},
        {RLIMIT_NICE, {0, 0}},
        {RLIMIT_RTPRIO, {0, 0}},
        {RLIMIT_STACK, {8 << 20, RLIM_INFINITY}},
        {RLIMIT_NPROC, {RLIM_INFINITY, RLIM_INFINITY}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        if (setrlimit(limits[i].resource, &limits[i].limit) < 0) {
            /* The hard limit that we were given may be lower; then that is what the sandbox gets. */
            struct rlimit now;
            tier_body_must(getrlimit(limits[i].resource, &now) < 0 ? -errno : 0, "read a limit");
            now.rlim_cur = MIN(now.rlim_max, limits[i].limit.rlim_cur);
            tier_body_must(setrlimit(limits[i].resource, &now) < 0 ? -errno : 0, "set a limit");
        }
}

NORETURN static void run_agent(void)
{
    char *const *argv = CHILD_ARGV("cove-agent");
    char *const *envp = CHILD_ARGV("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8");
    tier_body_tell(TIER_RUNS);
    (void)execveat(AGENT_FD, "", argv, envp, AT_EMPTY_PATH);
    tier_body_fail("execute cove-agent", errno);
}

NORETURN void container_child(int sock, const struct tier_host *host, const struct cgroup_door *door,
                              const struct box *box)
{
    char name[TIER_NAME_MAX], path[32];
    int mounts[FD_PASS_MAX];
    if (namespace_take_files() < 0)
        _exit(1);
    (void)snprintf(path, sizeof(path), "/trees/%u", box->tree);
    if (chdir(path) < 0) /* what is named without a slash below is of it */
        _exit(1);
    int joined = cgroup_door_enter(door); /* by descriptors that the next line closes */
    settle_descriptors(sock, host->agent_fd);
    tier_body_must(joined, "join the control group");
    unblock_signals();
    (void)prctl(PR_SET_NAME, "cove-blank", 0, 0, 0);
    (void)umask(022);
    become_blank(host, box->net.tcp >= 0);

    size_t n = await_dress(name, mounts);
    enter_root(mounts[0], mounts + 1, n - 1, box);
    tier_body_must(sethostname(name, strnlen(name, sizeof(name))) < 0 ? -errno : 0, "set the host name");
    container_child_set_limits();
    tier_body_must(box->sees_host ? process_confine() : 0, "confine what it writes");
    tier_body_must(caps_bound_sandbox(), "bound capabilities");
    tier_body_must(seccomp_load(SECCOMP_SANDBOX), "load the system call filter");
    run_agent();
}

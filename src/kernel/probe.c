/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/probe.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/caps.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/seccomp.h"
#include "kernel/tree/tree.h"
#include "kernel/watch/filewatch.h"
#include "kernel/watch/procwatch.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/kvm.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { CHILD_MS = 5000, TEST_BASE_UID = 0x6ffe0000, OPEN_FILES_WANTED = 65536 };

const char *probe_status_name(enum probe_status status)
{
    static const char *const names[] = {"ok", "degraded", "missing", "failed"};
    return names[status];
}

void probe_say(struct probe_result *r, enum probe_status status, const char *fmt, ...)
{
    r->status = status;
    FORMAT_ARGS(r->detail, fmt);
}

int probe_in_child(int (*fn)(const void *arg), const void *arg)
{
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        _exit(fn(arg));
    AUTO_CLOSE int pidfd = pidfd_open(pid, 0);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    bool late = pidfd >= 0 && poll(&p, 1, CHILD_MS) == 0;
    if (late)
        (void)kill(pid, SIGKILL);
    int status = child_wait(pid);
    return late ? -ETIMEDOUT : status;
}

static void kernel_version(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct utsname u;
    (void)uname(&u);
    probe_say(r, PROBE_OK, "Linux %s on %s", u.release, u.machine);
}

static void privileges(const struct probe_env *env UNUSED, struct probe_result *r)
{
    static const struct {
        int cap;
        const char *name;
    } wanted[] = {{CAP_SYS_ADMIN, "SYS_ADMIN"}, {CAP_SETUID, "SETUID"},
                  {CAP_SETGID, "SETGID"},       {CAP_CHOWN, "CHOWN"},
                  {CAP_MKNOD, "MKNOD"},         {CAP_KILL, "KILL"},
                  {CAP_SETPCAP, "SETPCAP"},     {CAP_DAC_OVERRIDE, "DAC_OVERRIDE"}};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (prctl(PR_CAPBSET_READ, wanted[i].cap, 0, 0, 0) != 1 || geteuid() != 0) {
            probe_say(r, PROBE_FAILED, "CAP_%s is missing: run the service as root", wanted[i].name);
            return;
        }
    if (prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) != 1)
        probe_say(r, PROBE_DEGRADED,
                  "root without CAP_SYS_RESOURCE: coved is not protected from the out-of-memory killer");
    else
        probe_say(r, PROBE_OK, "root with all that is needed");
}

/* A child in new namespaces whose ids are mapped; it ends when `hold` is closed. */
struct body {
    pid_t pid;
    int pidfd, hold, userns;
};

static int body_start(struct body *b)
{
    int p[2];
    char byte;
    *b = (struct body){0, -1, -1, -1};
    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = namespace_spawn(-1, TEST_BASE_UID, 0, &b->pidfd);
    if (pid == 0) {
        (void)fd_close(p[1]);
        _exit(read(p[0], &byte, 1) == 0 ? 0 : 1);
    }
    (void)fd_close(p[0]);
    b->hold = p[1];
    if (pid < 0)
        return pid;
    b->pid = pid;
    AUTO_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = proc < 0 ? -errno : namespace_map_ids(proc, pid, TEST_BASE_UID);
    return r < 0 ? r : namespace_open_user(proc, pid, &b->userns);
}

static void body_end(struct body *b)
{
    b->hold = fd_close(b->hold);
    child_kill(b->pid);
    b->pidfd = fd_close(b->pidfd);
    b->userns = fd_close(b->userns);
}

static int network_namespace_child(const void *arg UNUSED)
{
    return namespace_network() < 0;
}

static void namespaces(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct body b;
    usec_t from = clock_mono();
    int e = body_start(&b);
    usec_t took = clock_mono() - from;
    body_end(&b);
    if (e < 0)
        probe_say(r, PROBE_FAILED,
                  "user, mount, pid, ipc and uts namespaces with mapped ids: %s. In a container or chroot? Check"
                  " user.max_user_namespaces",
                  strerror(-e));
    else if (probe_in_child(network_namespace_child, NULL) != 0)
        probe_say(r, PROBE_FAILED, "no network namespaces with a loopback of their own. Check user.max_net_namespaces");
    else
        probe_say(r, PROBE_OK, "network; user, mount, pid, ipc, uts with 65,536 mapped ids, made in %llu us",
                  (unsigned long long)took);
}

static int cgroup_namespace_child(const void *arg UNUSED)
{
    return unshare(CLONE_NEWCGROUP) < 0;
}

static void cgroup_namespace(const struct probe_env *env UNUSED, struct probe_result *r)
{
    if (probe_in_child(cgroup_namespace_child, NULL) == 0)
        probe_say(r, PROBE_OK, "a sandbox sees its own groups only");
    else
        probe_say(r, PROBE_FAILED, "no cgroup namespaces (Linux 4.6 has them)");
}

struct overlay_try {
    const char *dir;
    enum overlay_mode mode;
};

/*
 * In a child with a private mount table: an overlay of idmapped layers, then a file made in it by the mapped root must
 * be uid 0 on disk. Returns an errno.
 */
static int overlay_child(const void *arg)
{
    const struct overlay_try *t = arg;
    struct body b;
    AUTO_CLOSE int box = -1, lower = -1, mount_fd = -1;
    int r = mount_unshare();
    if (r == 0 && chdir(t->dir) < 0)
        r = -errno;
    if (r < 0)
        return -r;
    r = body_start(&b);
    (void)umask(022);
    lower = open("l", O_PATH | O_DIRECTORY | O_CLOEXEC);
    box = open("b", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const struct overlay o = {t->mode, &lower, 1, box, b.userns, TEST_BASE_UID, "s", false};
    r = r ? r : overlay_mount(&o, &mount_fd, NULL, NULL);
    body_end(&b);
    r = r ? r : mount_attach(mount_fd, AT_FDCWD, "m");
    if (r < 0)
        return -r;
    if (setresgid(TEST_BASE_UID, TEST_BASE_UID, 0) < 0 || setresuid(TEST_BASE_UID, TEST_BASE_UID, 0) < 0 ||
        mkdir("m/made", 0755) < 0)
        return errno;
    struct stat st;
    if (setresuid(0, 0, 0) < 0 || stat("b/u/made", &st) < 0)
        return errno;
    return st.st_uid == 0 ? 0 : EOVERFLOW;
}

int probe_overlay(const struct probe_env *env, enum overlay_mode mode)
{
    static const char *const dirs[] = {"l", "b", "b/u", "b/w", "s", "m"};
    AUTO_FREE char *top = mem_printf("%s/probe.XXXXXX", env->scratch_dir);
    if (!mkdtemp(top))
        return -errno;
    int r = chmod(top, 0755) < 0 ? -errno : 0; /* the mapped root passes through */
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(dirs); i++) {
        AUTO_FREE char *dir = mem_printf("%s/%s", top, dirs[i]);
        if (mkdir(dir, 0755) < 0)
            r = -errno;
    }
    const struct overlay_try t = {top, mode};
    r = r ? r : probe_in_child(overlay_child, &t);
    int removed UNUSED = tree_remove(AT_FDCWD, top);
    return r > 255 ? -ECHILD : r > 0 ? -r : r;
}

int probe_overlay_mode(const struct probe_env *env, enum overlay_mode *ret_mode)
{
    enum overlay_mode mode = OVERLAY_DETACHED;
    int r = probe_overlay(env, mode);
    if (r < 0) {
        mode = OVERLAY_ATTACHED;
        r = probe_overlay(env, mode);
    }
    if (r == 0)
        *ret_mode = mode;
    return r;
}

static void root_file_system(const struct probe_env *env, struct probe_result *r)
{
    enum overlay_mode mode = OVERLAY_DETACHED;
    int e = probe_overlay_mode(env, &mode);
    if (e < 0)
        probe_say(
            r, PROBE_FAILED,
            "overlay of idmapped layers on %s: %s. Linux 5.19 and a file system with idmapped mounts (ext4, xfs, btrfs)"
            " are needed",
            env->scratch_dir, strerror(-e));
    else if (mode == OVERLAY_DETACHED)
        probe_say(r, PROBE_OK, "overlay of idmapped layers on %s, made detached", env->scratch_dir);
    else
        probe_say(
            r, PROBE_DEGRADED,
            "overlay of idmapped layers works with attached layers only (not needed from Linux 6.15 on): creating a "
            "sandbox takes longer");
}

static int filter_child(const void *arg UNUSED)
{
    if (seccomp_load(SECCOMP_SANDBOX) < 0)
        return 1;
    bool keyctl_refused = syscall(SYS_keyctl, 0, 0, 0, 0, 0) < 0 && errno == EPERM;
    bool unknown_refused = syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == ENOSYS;
    bool pid_allowed = syscall(SYS_getpid) > 0;
    return keyctl_refused && unknown_refused && pid_allowed ? 0 : 2;
}

static void system_call_filter(const struct probe_env *env UNUSED, struct probe_result *r)
{
    if (probe_in_child(filter_child, NULL) == 0)
        probe_say(r, PROBE_OK, "keyctl refused with EPERM, io_uring with ENOSYS, ordinary calls pass");
    else
        probe_say(r, PROBE_FAILED, "the prebuilt filter can't be loaded: the kernel needs CONFIG_SECCOMP_FILTER");
}

static int bounding_child(const void *arg UNUSED)
{
    if (caps_bound_sandbox() < 0)
        return 1;
    return prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 0 && prctl(PR_CAPBSET_READ, CAP_NET_ADMIN, 0, 0, 0) == 0
               ? 0
               : 2;
}

static void capabilities(const struct probe_env *env UNUSED, struct probe_result *r)
{
    if (probe_in_child(bounding_child, NULL) == 0)
        probe_say(r, PROBE_OK, "bounded to 12 that package managers, sudo and build tools use");
    else
        probe_say(r, PROBE_FAILED, "the bounding set can't be reduced");
}

static void landlock(const struct probe_env *env UNUSED, struct probe_result *r)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi > 0)
        probe_say(r, PROBE_OK, "ABI %ld (programs inside may use it)", abi);
    else
        probe_say(r, PROBE_MISSING, "not enabled: programs inside can't use it; boot with lsm=landlock,...");
}

static void open_files(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct rlimit limit;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    bool enough = limit.rlim_max >= OPEN_FILES_WANTED;
    probe_say(r, enough ? PROBE_OK : PROBE_DEGRADED, "%llu files%s", (unsigned long long)limit.rlim_max,
              enough ? "" : ": bounds sandboxes and connections; raise LimitNOFILE or ulimit -Hn");
}

static void processes_inside(const struct probe_env *env UNUSED, struct probe_result *r)
{
    struct procwatch *w = NULL;
    int failed = procwatch_open(&w);
    if (failed < 0)
        probe_say(r, PROBE_MISSING,
                  "what they execute is not recorded: %s; it needs CAP_BPF, CAP_PERFMON and a kernel with "
                  "CONFIG_DEBUG_INFO_BTF (Linux 5.8)",
                  strerror(-failed));
    else
        probe_say(r, PROBE_OK, "what they execute, and their ends, can be recorded (eBPF)");
    procwatch_close(w);
}

static void probe_on_file(void *ctx, const struct filewatch_event *e)
{
    *(bool *)ctx |= e->path && strcmp(e->path, "in/file") == 0;
}

static void files_inside(const struct probe_env *env, struct probe_result *r)
{
    char dir[PATH_MAX];
    struct filewatch *w = NULL;
    bool is_seen = false;
    (void)snprintf(dir, sizeof(dir), "%s/.watch-probe.XXXXXX", env->scratch_dir);
    AUTO_CLOSE int fd = mkdtemp(dir) ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int failed = fd < 0 ? -errno : filewatch_open(fd, &w);
    if (failed == 0) {
        int ignored UNUSED = mkdirat(fd, "in", 0700);
        (void)fd_close(openat(fd, "in/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        for (int i = 0; i < 1000 && !is_seen && filewatch_read(w, "in", probe_on_file, &is_seen) > 0; i++)
            ;
        (void)unlinkat(fd, "in/file", 0);
        (void)unlinkat(fd, "in", AT_REMOVEDIR);
    }
    if (failed < 0 || !is_seen)
        probe_say(r, PROBE_MISSING,
                  "what they write is not recorded: %s; it needs Linux 5.17 and a pool that is a file of its own",
                  failed < 0 ? strerror(-failed) : "the kernel told nothing");
    else
        probe_say(r, PROBE_OK, "what they write can be recorded (fanotify), in a pool that is a file of its own");
    filewatch_close(w);
    (void)rmdir(dir);
}

static void kvm(const struct probe_env *env UNUSED, struct probe_result *r)
{
    AUTO_CLOSE int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    int version = fd < 0 ? -1 : ioctl(fd, KVM_GET_API_VERSION, 0);
    if (version < 0)
        probe_say(r, PROBE_MISSING, "/dev/kvm: %s", strerror(errno));
    else
        probe_say(r, PROBE_OK, "API version %d; the tier microvm tries whether a machine runs on it", version);
}

const struct probe *probe_list(size_t *ret_n)
{
    static const struct probe list[] = {
        {"kernel", kernel_version},
        {"privileges", privileges},
        {"namespaces", namespaces},
        {"cgroup namespace", cgroup_namespace},
        {"root file system", root_file_system},
        {"system call filter", system_call_filter},
        {"capabilities", capabilities},
        {"memory limit", probe_cgroup_memory},
        {"process limit", probe_cgroup_pids},
        {"cpu limit", probe_cgroup_cpu},
        {"freezing", probe_cgroup_freeze},
        {"paused memory", probe_cgroup_reclaim},
        {"captured network", probe_network},
        {"open files", open_files},
        {"landlock", landlock},
        {"kvm", kvm},
        {"processes inside", processes_inside},
        {"files inside", files_inside},
    };
    *ret_n = ARRAY_SIZE(list);
    return list;
}

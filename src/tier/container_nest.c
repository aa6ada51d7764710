/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A nest: namespaces within those of a container that runs, and an agent in them. The sandbox's own programs can make
 * none, so coved makes these; the agent of the sandbox is as confined as its programs and has no part in it.
 *
 *  1. Three processes. The job enters the sandbox's control group and all of its namespaces but that of users. Its
 *     child is born in the sandbox's process namespace, closes what is coved's, and enters the user namespace, which
 *     takes all rights on the host from it. Its child is the first process of the nest: it builds the mounts and
 *     becomes the agent. Each ends with the one before it while that has something to do with it: when coved no longer
 *     waits, nothing is left.
 *  2. Once the nest stands the one between ends, so the sandbox's agent reaps the nest's first process, and the kernel
 *     ends all of it with the sandbox. coved remembers nothing.
 *  3. What the sandbox sees of these processes before they are the agent holds more capabilities than it, and memory of
 *     coved: they are not dumpable, and belong to a user namespace of the host or have capabilities that nobody inside
 *     has, so nobody inside can trace them. Ending or stopping them hurts the nest alone.
 *  4. All paths are the sandbox's, and hostile: they are walked inside, over no link. All mounts are made with the
 *     rights of the sandbox's user namespace alone, but for the root of a service, an overlay as the sandbox's own is:
 *     the job makes it before it enters anything, and no path of the sandbox has a part in it.
 *  5. A service sees nothing of the sandbox's files but /etc/hosts, which it can't change: its first process makes that
 *     root its own, and leaves the sandbox's behind, before the agent runs.
 *  6. Before the agent runs it is bound as the sandbox's own is: the same capabilities, the same filter, the same
 *     limits.
 */
#include "tier/container_nest.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/log.h"
#include "kernel/caps.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/netns.h"
#include "kernel/pool/pool.h"
#include "kernel/seccomp.h"
#include "kernel/tree/overlay.h"
#include "tier/container.h"
#include "tier/container_child.h"
#include "tier/files.h"
#include "tier/root.h"
#include "tier/tier.h"
#include "wire/supervisor.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where the descriptors of struct tier_nest are once all others are closed. */
enum { NEST_SESSION = 3, NEST_AGENT = 4, NEST_ROOT = 5, NEST_BOX = 6, NEST_STATUS = 7, NEST_SPARE = 64 };
enum { NEST_COVERS_MAX = 32, NEST_HOSTS_MAX = 16384, NEST_WAIT_US = 20000, NEST_WAITS = 250 };
#define NEST_OWN_BYTES "1g" /* of /tmp and the like; all of it is the sandbox's memory */
#define NEST_TERMINALS "16" /* of some 3,000 that the kernel has for all sandboxes of the machine */

/* ---- the first process of the nest ---- */

NORETURN static void nest_fail(int r)
{
    uint8_t number = (uint8_t)MIN(-r, 255);
    ssize_t ignored UNUSED = write(NEST_STATUS, &number, 1);
    _exit(1);
}

static void nest_must(int r)
{
    if (r < 0)
        nest_fail(r);
}

static int nest_open_as(const char *path, uint64_t flags, int *ret_fd)
{
    const struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    AUTO_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    *ret_fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    return *ret_fd < 0 ? -errno : 0;
}

static int nest_open(const char *path, int *ret_fd)
{
    return nest_open_as(path, O_PATH, ret_fd);
}

/* A detached copy of what is mounted there, with all below it. */
static int nest_clone(const char *path, bool is_directory, int *ret_fd)
{
    AUTO_CLOSE int at = -1;
    struct stat st;
    int r = nest_open(path, &at);
    if (r == 0 && is_directory && (fstat(at, &st) < 0 || !S_ISDIR(st.st_mode)))
        r = -ENOTDIR;
    if (r < 0)
        return r;
    *ret_fd = open_tree(at, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
    return *ret_fd < 0 ? -errno : 0;
}

static int nest_read_only(int fd, const char *path)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    return mount_setattr(fd, path, AT_RECURSIVE | AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

static int nest_attach(int fd, const char *path)
{
    AUTO_CLOSE int at = -1;
    int r = nest_open(path, &at);
    if (r == 0 && move_mount(fd, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        r = -errno;
    return r;
}

/* Where a directory of the nest's own hides the one that was there, it is made; elsewhere all is read-only by now. */
static int nest_attach_directory(int fd, const char *path)
{
    char part[SUP_NEST_PATH_MAX];
    int r = nest_attach(fd, path);
    for (size_t i = 1; r == -ENOENT && i <= strlen(path); i++) {
        if (path[i] && path[i] != '/')
            continue;
        (void)snprintf(part, sizeof(part), "%.*s", (int)i, path);
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return errno == EROFS ? -ENOENT : -errno;
    }
    return r == -ENOENT ? nest_attach(fd, path) : r;
}

/* Over the directory, if there is one. */
static void nest_own(const char *type, const char *const *options, uint64_t attrs, const char *path)
{
    AUTO_CLOSE int fd = -1;
    nest_must(mount_new(type, options, attrs | MOUNT_ATTR_NOSUID, &fd));
    int r = nest_attach(fd, path);
    nest_must(r == -ENOENT ? 0 : r);
}

static void nest_own_memory(const char *path, const char *mode)
{
    const char *const options[] = {"mode", mode, "size", NEST_OWN_BYTES, NULL};
    nest_own("tmpfs", options, MOUNT_ATTR_NODEV, path);
}

/* A procfs of the nest's processes, with the covers of the sandbox's; and what a network is set to before these. */
static void nest_proc(bool own_network)
{
    int covers[NEST_COVERS_MAX];
    char path[32];
    size_t n = 0;
    for (const struct container_cover *c = container_covers; c->name; c++, n++) {
        assert(n < ARRAY_SIZE(covers));
        (void)snprintf(path, sizeof(path), "/proc/%s", c->name);
        covers[n] = -1;
        int r = nest_clone(path, false, &covers[n]);
        nest_must(r == -ENOENT ? 0 : r);
    }
    nest_own("proc", NULL, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, "/proc");
    if (own_network) {
        AUTO_CLOSE int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        nest_must(netns_apply_basic(proc));
    }
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof(path), "/proc/%s", container_covers[i].name);
        if (covers[i] >= 0)
            nest_must(nest_attach(covers[i], path));
        (void)fd_close(covers[i]);
    }
}

/* The workspace with changes on top that go with the nest. Where they are is seen by nobody: the mount over /dev/shm is
 * gone before the agent runs. */
static void nest_overlay(int workspace, int *ret_fd)
{
    static const char *const options[] = {"lowerdir",   ".",         "upperdir", "/dev/shm/u", "workdir",
                                          "/dev/shm/w", "userxattr", NULL,       NULL};
    struct stat st;
    nest_own_memory("/dev/shm", "0700");
    if (fchdir(workspace) < 0 || fstat(workspace, &st) < 0 || mkdir("/dev/shm/u", 0755) < 0 ||
        mkdir("/dev/shm/w", 0755) < 0 || chown("/dev/shm/u", st.st_uid, st.st_gid) < 0 ||
        chmod("/dev/shm/u", st.st_mode & 07777) < 0)
        nest_fail(-errno);
    nest_must(mount_new("overlay", options, MOUNT_ATTR_NODEV, ret_fd));
    if (umount2("/dev/shm", MNT_DETACH) < 0 || chdir("/") < 0)
        nest_fail(-errno);
}

static void nest_devices(void)
{
    static const char *const pts[] = {"newinstance", NULL, "ptmxmode", "0666",         "mode", "0620",
                                      "gid",         "5",  "max",      NEST_TERMINALS, NULL};
    nest_own("devpts", pts, MOUNT_ATTR_NOEXEC, "/dev/pts");
    nest_own_memory("/dev/shm", "1777");
    nest_own("mqueue", NULL, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, "/dev/mqueue");
}

/* What the sandbox has made of the file is its own business; that it can't be written only means that nobody finds the
 * service by name. */
static void nest_name(const char *name)
{
    char text[NEST_HOSTS_MAX], line[SUP_NEST_NAME_MAX + 16];
    AUTO_CLOSE int fd = -1;
    struct stat st;
    if (nest_open_as("/etc/hosts", O_RDWR | O_APPEND | O_NONBLOCK | O_NOCTTY, &fd) < 0 || fstat(fd, &st) < 0 ||
        !S_ISREG(st.st_mode))
        return;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    int length = snprintf(line, sizeof(line), "\n127.0.0.1\t%s\n", name);
    if (n < 0 || (size_t)n == sizeof(text) - 1)
        return;
    text[n] = 0;
    bool is_ended = n == 0 || text[n - 1] == '\n';
    if (!memmem(text, (size_t)n, line, (size_t)length)) {
        ssize_t ignored UNUSED = write(fd, line + is_ended, (size_t)(length - is_ended));
    }
}

/* /proc, /dev and /sys are those of a nest, whatever the service's root has there. */
static void nest_enter_root(const struct sup_nest *asked)
{
    static const char *const names[] = {"proc", "dev", "sys"};
    int trees[ARRAY_SIZE(names)], hosts = -1;
    char path[8];
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || sethostname(asked->name, strlen(asked->name)) < 0)
        nest_fail(-errno);
    nest_name(asked->name);
    nest_proc(false);
    nest_devices();
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "/%s", names[i]);
        nest_must(nest_clone(path, true, &trees[i]));
    }
    bool has_hosts = nest_clone("/etc/hosts", false, &hosts) == 0 && nest_read_only(hosts, "") == 0;
    nest_must(nest_attach(NEST_ROOT, "/sys")); /* a mount that is there: any will do */
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (mkdirat(NEST_ROOT, names[i], 0755) < 0 && errno != EEXIST)
            nest_fail(-errno);
        nest_must(mount_attach(trees[i], NEST_ROOT, names[i]));
    }
    nest_must(mount_pivot(NEST_ROOT));
    int ignored UNUSED = has_hosts ? nest_attach(hosts, "/etc/hosts") : 0;
}

static void nest_mounts(const struct sup_nest *asked)
{
    AUTO_CLOSE int workspace = -1, lower = -1;
    int binds[SUP_NEST_BINDS_MAX] = {0};
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        nest_fail(-errno);
    if (asked->mode == SUP_NEST_OVERLAY)
        nest_must(nest_open(asked->workspace, &lower));
    else
        nest_must(nest_clone(asked->workspace, true, &workspace));
    for (size_t i = 0; i < asked->n_binds; i++)
        nest_must(nest_clone(asked->binds[i].source, true, &binds[i]));
    int tmp = -1;
    if (!asked->own_tmp && nest_clone("/tmp", true, &tmp) < 0)
        tmp = -1;
    nest_must(nest_read_only(AT_FDCWD, "/"));

    nest_proc(asked->own_network);
    if (lower >= 0)
        nest_overlay(lower, &workspace);
    nest_devices();
    if (tmp >= 0)
        nest_must(nest_attach(tmp, "/tmp"));
    else
        nest_own_memory("/tmp", "1777");
    nest_own_memory("/run", "0755");
    if (asked->mode == SUP_NEST_RO)
        nest_must(nest_read_only(workspace, ""));
    nest_must(nest_attach_directory(workspace, asked->workspace));
    for (size_t i = 0; i < asked->n_binds; i++) {
        if (asked->binds[i].read_only)
            nest_must(nest_read_only(binds[i], ""));
        nest_must(nest_attach_directory(binds[i], asked->binds[i].path));
    }
}

NORETURN static void nest_run(const struct sup_nest *asked)
{
    char *const *argv = CHILD_ARGV("cove-agent");
    char *const *envp = CHILD_ARGV("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8");
    struct pollfd status = {.fd = NEST_STATUS};
    /* Until it is the agent it ends with the one between: somebody may have stopped it, and coved does not wait for
     * long. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || poll(&status, 1, 0) != 0)
        _exit(1);
    if (asked->own_network)
        nest_must(namespace_network());
    (*asked->root ? nest_enter_root : nest_mounts)(asked);
    nest_must(caps_bound_sandbox());
    if (prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0)
        nest_fail(-errno);
    nest_must(seccomp_load(SECCOMP_SANDBOX));
    (void)execveat(NEST_AGENT, "", argv, envp, AT_EMPTY_PATH);
    nest_fail(-errno);
}

/* ---- the one between ---- */

/* What is kept of coved's, at the numbers above; all else is closed. Without a root its number is the agent's, too. */
static int nest_settle(const struct tier_nest *n, int root)
{
    const int kept[] = {n->fds[TIER_NEST_SESSION], n->fds[TIER_NEST_AGENT], root < 0 ? n->fds[TIER_NEST_AGENT] : root,
                        n->fds[TIER_NEST_PIDFD]};
    int spare[ARRAY_SIZE(kept)];
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if ((spare[i] = fcntl(kept[i], F_DUPFD, NEST_SPARE)) < 0)
            return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (dup3(spare[i], NEST_SESSION + (int)i, O_CLOEXEC) < 0)
            return -errno;
    if (fcntl(NEST_SESSION, F_SETFD, 0) < 0 || close_range(NEST_STATUS, ~0U, 0) < 0)
        return -errno;
    return 0;
}

/* 0 to 2 are coved's until here. */
static int nest_null(void)
{
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_NOCTTY | O_CLOEXEC);
    for (int fd = 0; fd <= 2; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            return -errno;
    return 0;
}

/* Those of the sandbox's first process, as far as they are not ours already. */
static int nest_limits(void)
{
    struct rlimit theirs, ours;
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        const __rlimit_resource_t which = (__rlimit_resource_t)resource;
        if (prlimit(1, which, NULL, &theirs) < 0 || getrlimit(which, &ours) < 0)
            return -errno;
        theirs.rlim_max = MIN(theirs.rlim_max, ours.rlim_max);
        theirs.rlim_cur = MIN(theirs.rlim_cur, theirs.rlim_max);
        if (setrlimit(which, &theirs) < 0)
            return -errno;
    }
    return 0;
}

static int nest_enter(const struct tier_nest *n, int root)
{
    int ends[2], r = nest_settle(n, root);
    if (r < 0)
        return r;
    if (setns(NEST_BOX, CLONE_NEWUSER) < 0)
        return -errno;
    r = namespace_become_root();
    /* A change of ids and namespaces undoes both. */
    if (r == 0 && (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0))
        r = -errno;
    r = r ? r : nest_null();
    r = r ? r : nest_limits();
    if (r < 0)
        return r;
    (void)umask(022);
    (void)close(NEST_BOX);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    assert(ends[1] == NEST_STATUS); /* all below are taken, all above closed */
    long pid = syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        (void)close(ends[0]);
        nest_run(n->asked);
    }
    if (pid < 0)
        return -errno;
    (void)close(NEST_STATUS);
    uint8_t number = 0;
    ssize_t got = read(ends[0], &number, 1);
    return got < 0 ? -errno : got == 1 ? -(int)number : 0;
}

/* ---- the job ---- */

/* The root of a service, as a detached mount. It is made beside coved, in the one namespace that may clone the pool's
 * mounts. */
static int nest_root(const struct tier_host *host, const struct tier_nest *n, int *ret_fd)
{
    char key[SUP_DIGEST_MAX + SUP_NEST_NAME_MAX], hostname[SUP_NEST_NAME_MAX + 1], scratch[32];
    const struct pool_file files[] = {
        {"etc/hostname", hostname}, {"etc/hosts", "127.0.0.1 localhost\n"}, {"etc/resolv.conf", root_resolver}};
    struct pool_chain below = {.n = 0}, root;
    const struct pool_service service = {n->box, key, &below, &root, files, ARRAY_SIZE(files)};
    AUTO_CLOSE int users = -1, box = -1;
    int lower[POOL_LOWER_MAX];
    size_t n_lower = 0;
    const char *step = NULL;
    (void)snprintf(key, sizeof(key), "%s.%s", n->asked->name, n->asked->root);
    (void)snprintf(hostname, sizeof(hostname), "%s\n", n->asked->name);
    (void)snprintf(scratch, sizeof(scratch), "/scratch/%d", (int)getpid());
    int r = pool_chain_read(host->pool, n->asked->root, &root);
    if (r == 0 && *n->stands_on)
        r = pool_chain_read(host->pool, n->stands_on, &below);
    r = r ? r : namespace_open_user(host->proc_fd, n->pid, &users);
    r = r ? r : pool_service_make(host->pool, &service, &box, lower, &n_lower);
    if (r == 0 && faccessat(lower[0], FILES_DISK, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        r = -EMEDIUMTYPE;
    const struct overlay overlay = {.mode = (enum overlay_mode)host->overlay_mode,
                                    .lower_fds = lower,
                                    .n_lower = n_lower,
                                    .box_fd = box,
                                    .userns_fd = users,
                                    .base = n->base,
                                    .scratch = scratch,
                                    .is_alone = true};
    if (r == 0 && overlay.mode == OVERLAY_ATTACHED && mkdir(scratch, 0700) < 0)
        r = -errno;
    r = r ? r : overlay_mount(&overlay, ret_fd, NULL, &step);
    /* Who had the session of the one before may have died just now, and its processes not be gone yet. */
    for (unsigned i = 0; r == -EBUSY && i < NEST_WAITS && usleep(NEST_WAIT_US) == 0; i++)
        r = overlay_mount(&overlay, ret_fd, NULL, &step);
    if (r < 0 && step)
        log_warn("mount the root of service '%s': %s: %s", n->asked->name, step, strerror(-r));
    for (size_t i = 0; overlay.mode == OVERLAY_ATTACHED && i <= n_lower + 1; i++) {
        char at[48];
        (void)snprintf(at, sizeof(at), "%s/%zu", scratch, i);
        (void)rmdir(i <= n_lower ? at : scratch); /* where layers were attached as long as that took */
    }
    return r;
}

int container_nest(const struct tier_host *host, const struct tier_nest *n)
{
    AUTO_CLOSE int root = -1;
    int made = *n->asked->root ? nest_root(host, n, &root) : 0;
    if (made < 0)
        return made;
    int r = cgroup_attach(host->cgroups, n->group, getpid());
    if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        r = -errno;
    r = r ? r : namespace_set_oom_score(host->proc_fd, getpid(), CONTAINER_OOM_SCORE);
    if (r < 0)
        return r;
    /* The child is seen inside from its first moment on, and of what of it anybody can read some tells of these. */
    if (setns(n->fds[TIER_NEST_PIDFD],
              CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        _exit(-nest_enter(n, root));
    r = pid < 0 ? -errno : child_wait(pid);
    return r > CHILD_SIGNAL ? -EIO : r > 0 ? -r : r;
}

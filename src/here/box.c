/* SPDX-License-Identifier: Apache-2.0 */
#include "here/box.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "here/bwrap.h"
#include "here/devices.h"
#include "kernel/caps.h"
#include "kernel/landlock.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/netns.h"
#include "kernel/seccomp.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_NOT_EXECUTABLE = 126, STATUS_NOT_FOUND = 127 };

struct here_box {
    const struct box_spec *spec;
    const sigset_t *mask;
    int nodes[DEVICES_N];
    char *ca;
};

/* ---- words to the launcher ---- */

static void box_say(const struct here_box *b, enum box_word word, int number, const char *text)
{
    struct box_message m = {.word = word, .number = number};
    (void)snprintf(m.text, sizeof(m.text), "%s", text);
    (void)send(b->spec->link, &m, offsetof(struct box_message, text) + strlen(m.text) + 1, MSG_NOSIGNAL);
}

static NORETURN void box_fail(const struct here_box *b, int r, const char *what)
{
    box_say(b, BOX_FAILED, -r, what);
    _exit(1);
}

static void box_must(const struct here_box *b, int r, const char *what)
{
    if (r < 0)
        box_fail(b, r, what);
}

/* ---- identity and network ---- */

static int box_write(const char *path, const char *text)
{
    return fd_write_existing(AT_FDCWD, path, str_of(text));
}

static void box_map(const struct here_box *b, uid_t uid, gid_t gid)
{
    const struct bwrap *w = b->spec->bwrap;
    char line[64];
    box_must(b, box_write("/proc/self/setgroups", "deny"), "a user namespace of its own");
    (void)snprintf(line, sizeof(line), "%u %u 1", w && w->uid >= 0 ? (uid_t)w->uid : uid, uid);
    box_must(b, box_write("/proc/self/uid_map", line), "map the user's id");
    (void)snprintf(line, sizeof(line), "%u %u 1", w && w->gid >= 0 ? (gid_t)w->gid : gid, gid);
    box_must(b, box_write("/proc/self/gid_map", line), "map the group's id");
}

static void box_network(const struct here_box *b)
{
    struct netns net = NETNS_NONE;
    struct box_message m = {.word = BOX_NETWORK};
    int memory = -1;
    if (!b->spec->with_network) {
        if (!b->spec->bwrap || !b->spec->bwrap->with_network)
            box_must(b, namespace_network(), "a network namespace");
        box_say(b, BOX_READY, 0, "");
        return;
    }
    box_must(b, netns_make(&net), "capture the network (nf_tables with inet, nat, ct, reject, limit, and IPv6)");
    box_must(b, mount_new("tmpfs", (const char *const[]){"mode", "0700", "size", "1m", NULL}, 0, &memory),
             "memory for the vault");
    int directory = openat(memory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    box_must(b, directory < 0 ? -errno : 0, "memory for the vault");
    const int fds[BOX_FDS] = {net.tcp, net.dns_udp, net.dns_tcp, directory};
    box_must(b, fd_send(b->spec->link, &m, offsetof(struct box_message, text) + 1, fds, BOX_FDS), "tell the launcher");
    netns_close(&net);
    (void)fd_close(memory);
    (void)fd_close(directory);
}

static void box_await_go(struct here_box *b)
{
    struct box_message m;
    ssize_t n = recv(b->spec->link, &m, sizeof(m), 0);
    if (n < (ssize_t)offsetof(struct box_message, text) || m.word != BOX_GO)
        _exit(1); /* the launcher knows why */
    m.text[sizeof(m.text) - 1] = '\0';
    b->ca = m.text[0] ? mem_strdup(m.text) : NULL;
}

/* ---- files ---- */

static int box_set_tree(int fd, const char *path, uint64_t attrs)
{
    struct mount_attr attr = {.attr_set = attrs};
    return mount_setattr(fd, path, AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

/* Where the plan found it: what a link that is there since leads to is another place. */
static int box_clone(const struct plan_op *op, uint64_t attrs, int *ret_fd)
{
    AUTO_CLOSE int at = -1;
    if (op->is_link)
        return mount_clone_tree(AT_FDCWD, op->path, attrs, ret_fd);
    int r = plan_open(op->path, &at);
    return r ? r : mount_clone_tree(at, "", attrs, ret_fd);
}

static int box_attach(int fd, const struct plan_op *op)
{
    AUTO_CLOSE int at = -1;
    int r = plan_open(op->path, &at);
    return r ? r : mount_attach(fd, at, "");
}

/* What is to be seen again below what is covered needs a place there. */
static int box_make_places(const struct plan *p, const struct plan_op *mask, int fd)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct plan_op *op = &p->ops[i];
        if ((op->kind != PLAN_WRITE && op->kind != PLAN_READ) || op->fd < 0 || strcmp(op->path, mask->path) == 0 ||
            !plan_is_below(op->path, mask->path))
            continue;
        AUTO_FREE char *below = mem_strdup(op->path + strlen(mask->path) + (mask->path[1] != 0));
        for (char *c = strchr(below, '/'); c; c = strchr(c + 1, '/')) {
            *c = '\0';
            (void)mkdirat(fd, below, 0755);
            *c = '/';
        }
        if (op->is_directory)
            (void)mkdirat(fd, below, 0755);
        else
            (void)!devices_touch(fd, below, 0444, "");
    }
    return 0;
}

static bool box_has_places(const struct plan *p, const struct plan_op *mask)
{
    for (size_t i = 0; i < p->n; i++)
        if ((p->ops[i].kind == PLAN_WRITE || p->ops[i].kind == PLAN_READ) && &p->ops[i] != mask &&
            plan_is_below(p->ops[i].path, mask->path))
            return true;
    return false;
}

static int box_mask(const struct plan *p, const struct plan_op *op)
{
    AUTO_CLOSE int fd = -1;
    int r;
    if (!op->is_directory) {
        r = mount_clone_tree(AT_FDCWD, BOX_OWN "nothing", MOUNT_ATTR_RDONLY, &fd);
    } else {
        r = mount_new("tmpfs", (const char *const[]){"mode", "0700", "size", "1m", NULL},
                      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &fd);
        r = r ? r : box_make_places(p, op, fd);
        if (r == 0 && fchmodat(fd, ".", box_has_places(p, op) ? 0111 : 0, 0) < 0) /* without a place nobody gets in */
            r = -errno;
        r = r ? r : mount_set(fd, MOUNT_ATTR_RDONLY, -1);
    }
    return r ? r : box_attach(fd, op);
}

static bool box_is_hidden(const struct plan *p, const struct plan_op *op)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->ops[i].kind == PLAN_MASK && &p->ops[i] != op && plan_is_below(op->path, p->ops[i].path))
            return true;
    return false;
}

static int box_make(const char *name, const char *content, int *ret_fd)
{
    AUTO_FREE char *own = mem_printf(BOX_OWN "%s", name);
    int r = devices_touch(AT_FDCWD, own, 0444, content);
    return r ? r : mount_clone_tree(AT_FDCWD, own, MOUNT_ATTR_RDONLY, ret_fd);
}

static int box_cover(const char *path, const char *name, const char *content)
{
    AUTO_CLOSE int fd = -1;
    int r = box_make(name, content, &fd);
    return r ? r : mount_attach(fd, AT_FDCWD, path);
}

static int box_apply(const struct plan *p, const struct plan_op *op)
{
    AUTO_CLOSE int fd = -1;
    char name[32];
    int r = 0;
    switch (op->kind) {
    case PLAN_WRITE:
    case PLAN_READ:
        return op->fd < 0 ? 0 : box_attach(op->fd, op);
    case PLAN_PIN:
    case PLAN_FIXED:
        r = box_clone(op, op->kind == PLAN_FIXED ? MOUNT_ATTR_RDONLY : 0, &fd);
        if ((r == -ENOENT || r == -EACCES) && box_is_hidden(p, op))
            return 0;
        if (r == -ENOENT || (r == -EACCES && op->is_link)) /* a link that leads nowhere, or to what is hidden */
            r = mount_clone_tree(AT_FDCWD, BOX_OWN "nothing", MOUNT_ATTR_RDONLY, &fd);
        return r ? r : box_attach(fd, op);
    case PLAN_MASK:
        r = box_mask(p, op);
        return (r == -ENOENT || r == -EACCES) && box_is_hidden(p, op) ? 0 : r;
    case PLAN_CONTENT:
        (void)snprintf(name, sizeof(name), "content-%zu", (size_t)(op - p->ops));
        r = box_make(name, op->content, &fd);
        return r ? r : box_attach(fd, op);
    }
    return -EINVAL;
}

static void box_clone_what_stays(struct here_box *b)
{
    const struct plan *p = b->spec->plan;
    for (size_t i = 0; i < p->n; i++) {
        struct plan_op *op = &p->ops[i];
        if ((op->kind != PLAN_WRITE && op->kind != PLAN_READ) || strcmp(op->path, "/") == 0)
            continue;
        uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (op->kind == PLAN_READ ? MOUNT_ATTR_RDONLY : 0);
        box_must(b, box_clone(op, attrs, &op->fd), op->path);
    }
    box_must(b, devices_open(b->nodes), "devices");
}

static void box_proc(const struct here_box *b)
{
    AUTO_CLOSE int fd = -1;
    const uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    int r = b->spec->weaker_nested
                ? mount_new("tmpfs", (const char *const[]){"mode", "0555", NULL}, attrs | MOUNT_ATTR_RDONLY, &fd)
                : mount_new("proc", NULL, attrs, &fd);
    r = r ? r : mount_attach(fd, AT_FDCWD, "/proc");
    box_must(b, r, "a /proc of its own (enableWeakerNestedSandbox has an empty one)");
}

static const char *const box_bundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                          "/etc/ssl/cert.pem"};

/* Names are asked for where they are captured; what is intercepted is trusted. */
static void box_network_files(const struct here_box *b)
{
    if (b->spec->with_network)
        box_must(b, box_cover("/etc/resolv.conf", "resolv.conf", "nameserver " NETNS_DNS_ADDRESS "\n"),
                 "a /etc/resolv.conf");
    if (!b->ca)
        return;
    AUTO_BUF struct buf all = BUF_INIT(8 << 20);
    for (size_t i = 0; i < ARRAY_SIZE(box_bundles) && !buf_len(&all); i++)
        if (fd_read_file(AT_FDCWD, box_bundles[i], &all) < 0)
            buf_clear(&all);
    buf_append_cstr(&all, "\n");
    buf_append_cstr(&all, b->ca);
    AUTO_FREE char *text = buf_take(&all);
    box_must(b, devices_touch(AT_FDCWD, BOX_OWN "ca.pem", 0444, b->ca), "the CA");
    for (size_t i = 0; i < ARRAY_SIZE(box_bundles); i++) {
        AUTO_FREE char *name = mem_printf("bundle-%zu", i);
        if (access(box_bundles[i], R_OK) == 0)
            box_must(b, box_cover(box_bundles[i], name, text), box_bundles[i]);
    }
}

static void box_files(struct here_box *b)
{
    const struct plan *p = b->spec->plan;
    uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (p->all_writable ? 0 : MOUNT_ATTR_RDONLY);
    box_must(b, mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0, "mounts of its own");
    box_clone_what_stays(b);
    box_must(b, box_set_tree(AT_FDCWD, "/", attrs), "make files read-only");
    box_must(b, devices_mount(b->nodes, "/dev"), "devices");
    box_proc(b);
    box_network_files(b);
    for (size_t i = 0; i < p->n; i++) {
        int r = box_apply(p, &p->ops[i]);
        box_must(b, r, p->ops[i].path);
    }
    struct mount_attr fixed = {.attr_set = MOUNT_ATTR_RDONLY};
    box_must(b, mount_setattr(AT_FDCWD, "/dev", 0, &fixed, sizeof(fixed)) < 0 ? -errno : 0, "devices");
    box_must(b, chdir(b->spec->cwd) < 0 ? -errno : 0, b->spec->cwd);
}

static void box_bwrap(const struct here_box *b)
{
    struct bwrap *w = b->spec->bwrap;
    const char *what = "";
    box_must(b, mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0, "mounts of its own");
    int r = bwrap_build(w, b->spec->cwd, &what);
    box_must(b, r, what);
    if (w->hostname)
        box_must(b, sethostname(w->hostname, strlen(w->hostname)) < 0 ? -errno : 0, "--hostname");
    if (w->is_cgroup)
        box_must(b, unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0, "--unshare-cgroup");
}

/* ---- rights ---- */

/* What is there of what may be written; the rest of it lies below something else. */
static void box_landlock_bwrap(const struct here_box *b, int rules)
{
    const struct bwrap *w = b->spec->bwrap;
    bool has_root = false;
    for (size_t i = 0; i < w->n; i++) {
        const struct bwrap_op *op = &w->ops[i];
        has_root |= strcmp(op->to, "/") == 0;
        if (op->kind == BWRAP_RO_BIND || op->kind == BWRAP_RO_BIND_DATA || op->kind == BWRAP_REMOUNT_RO)
            continue;
        int r = landlock_allow(rules, op->to);
        box_must(b, r == -ENOENT || r == -ENOTDIR || r == -EACCES ? 0 : r, op->to);
    }
    box_must(b, has_root ? 0 : landlock_allow(rules, "/"), "/");
}

static void box_landlock(const struct here_box *b)
{
    static const char *const always[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
                                         "/dev/tty",  "/dev/pts",  "/dev/shm",  "/proc"};
    const struct plan *p = b->spec->plan;
    AUTO_CLOSE int rules = -1;
    box_must(b, landlock_begin(&rules), "Landlock (boot with lsm=landlock,...)");
    for (size_t i = 0; i < ARRAY_SIZE(always) && !b->spec->bwrap; i++)
        box_must(b, landlock_allow(rules, always[i]), always[i]);
    if (b->spec->bwrap)
        box_landlock_bwrap(b, rules);
    for (size_t i = 0; i < p->n; i++)
        if (p->ops[i].kind == PLAN_WRITE)
            box_must(b, landlock_allow(rules, p->ops[i].path), p->ops[i].path);
    box_must(b, landlock_enforce(rules), "Landlock");
}

static void box_confine(const struct here_box *b)
{
    box_must(b, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0, "no_new_privs");
    box_landlock(b);
    box_must(b, caps_drop_all(), "give up capabilities");
    box_must(b, seccomp_load(SECCOMP_SANDBOX), "the filter on system calls");
    box_must(b, seccomp_load_no_group(!landlock_keeps_signals()), "the filter on process groups");
    if (!b->spec->all_unix_sockets)
        box_must(b, seccomp_load_no_unix(), "the filter on unix sockets");
    box_must(b, prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0, "close this process to others");
}

/* ---- the command ---- */

/* execvpe() says EACCES, too, when all that it may not is to search a directory of PATH. */
static bool box_is_found(const char *file)
{
    struct str rest = str_of(getenv("PATH") ? getenv("PATH") : ""), dir;
    struct stat st;
    bool is_found = strchr(file, '/') != NULL;
    while (!is_found && str_split(&rest, ':', &dir)) {
        AUTO_FREE char *path = mem_printf("%.*s/%s", STR_ARG(dir), file);
        is_found = stat(dir.n ? path : file, &st) == 0 && S_ISREG(st.st_mode);
    }
    return is_found;
}

static NORETURN void box_command(const struct here_box *b)
{
    const struct bwrap *w = b->spec->bwrap;
    const char *file = b->spec->file;
    if (w && w->is_session)
        (void)setsid();
    if (w && bwrap_filter(w) < 0) {
        (void)dprintf(STDERR_FILENO, "bwrap: --seccomp: %s\n", strerror(errno));
        _exit(1);
    }
    (void)sigprocmask(SIG_SETMASK, b->mask, NULL);
    (void)execvpe(file, b->spec->argv, b->spec->environment);
    int why = errno;
    if (why == EACCES && !box_is_found(file))
        why = ENOENT;
    (void)dprintf(STDERR_FILENO, "%s: %s: %s\n", w ? "bwrap: execvp" : "cove here", file, strerror(why));
    if (w)
        _exit(1);
    _exit(why == ENOENT || why == ENOTDIR ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
}

/* True: the command ended. */
static bool box_reap(const struct here_box *b, pid_t command)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != command)
            continue;
        box_say(b, BOX_STATUS, status, "");
        return true;
    }
    return false;
}

static NORETURN void box_init(const struct here_box *b)
{
    sigset_t all;
    siginfo_t info;
    pid_t command = fork();
    box_must(b, command < 0 ? -errno : 0, "start the command");
    if (command == 0)
        box_command(b);
    for (int fd = 0; fd < 3; fd++)
        (void)close(fd); /* who reads the command's output must see its end */
    (void)sigfillset(&all);
    while (!box_reap(b, command)) {
        int signum = sigwaitinfo(&all, &info);
        /* From the launcher, which is nobody in here. What the terminal says the command hears by itself. */
        if (signum > 0 && signum != SIGCHLD && info.si_code <= 0 && info.si_pid == 0)
            (void)kill(command, signum);
    }
    _exit(0);
}

static NORETURN void box_run(struct here_box *b, uid_t uid, gid_t gid)
{
    struct pollfd launcher = {.fd = b->spec->link, .events = POLLIN};
    (void)close(b->spec->link_of_launcher);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || poll(&launcher, 1, 0) != 0)
        _exit(1); /* it is gone already */
    box_map(b, uid, gid);
    box_network(b);
    box_await_go(b);
    if (b->spec->bwrap)
        box_bwrap(b);
    else
        box_files(b);
    box_confine(b);
    (void)fcntl(b->spec->link, F_SETFD, FD_CLOEXEC);
    (void)close_range(3, (unsigned)b->spec->link - 1, 0);
    (void)close_range((unsigned)b->spec->link + 1, ~0U, 0);
    box_init(b);
}

pid_t box_start(const struct box_spec *spec, const void *mask)
{
    struct here_box b = {.spec = spec, .mask = mask};
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS,
        .exit_signal = SIGCHLD,
    };
    uid_t uid = getuid();
    gid_t gid = getgid();
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        box_run(&b, uid, gid);
    return pid < 0 ? -errno : (pid_t)pid;
}

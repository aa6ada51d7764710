/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gVisor: a kernel of its own in a program of this user namespace's ("sentry"), which serves the sandbox's system
 * calls, over the same layers, ids, control groups and files in the pool as a container. runsc starts it;
 * gvisor_child.c is what runs until then.
 *
 * The control socket is runsc's standard input, and so the agent's: sessions are handed in by descriptor as a
 * container's are. What asks while the sentry still boots waits in that socket.
 */
#include "base/buf.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/log.h"
#include "kernel/namespace.h"
#include "tier/container.h"
#include "tier/files.h"
#include "tier/group.h"
#include "tier/gvisor_child.h"
#include "tier/gvisor_save.h"
#include "tier/gvisor_still.h"
#include "tier/root.h"
#include "tier/stage.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* As it was found when coved started; the stage, on which boxes are made, sees no program of the host. */
static struct gvisor_runsc gvisor_runsc = {.fd = -1}; /* owned */

#define GVISOR_TRIED "runsc-tried"

enum { GVISOR_TRY_SECONDS = 60, /* tenths of one, where nothing else runs */ GVISOR_KNOWN = 512 };

static int gvisor_find(void)
{
    static const char *const places[] = {"/usr/local/bin/runsc", "/usr/bin/runsc", "/usr/local/sbin/runsc"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        int fd = open(places[i], O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

/* What `runsc flags`, or another thing to ask for, says. */
static int gvisor_ask(int runsc_fd, const char *what, const char *of, struct buf *b)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        char *const envp[] = {NULL};
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)fexecve(runsc_fd, CHILD_ARGV("runsc", what, of), envp);
        _exit(127);
    }
    (void)fd_close(ends[1]);
    int r = pid < 0 ? -errno : fd_read_all(ends[0], b);
    (void)fd_close(ends[0]);
    (void)child_wait(pid);
    return r;
}

/* On systrap it runs a program of the host's; all of that ends with its first process. */
static pid_t gvisor_try(int runsc_fd)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    char *const *argv = CHILD_ARGV("runsc", "--root=/tmp", "--platform=systrap", "--network=none", "--ignore-cgroups",
                                   "do", "/bin/true");
    char *const *envp = CHILD_ARGV("PATH=/");
    int null = open("/dev/null", O_RDWR);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(GVISOR_TRY_SECONDS);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        unshare(CLONE_NEWNS | CLONE_NEWPID) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        _exit(1);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (mount("proc", "/proc", "proc", 0, NULL) == 0 && mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0)
            (void)fexecve(runsc_fd, argv, envp);
        _exit(127);
    }
    _exit(child_wait(pid) == 0 ? 0 : 1);
}

/* Of the program, on this boot; empty: nothing can be kept. */
static void gvisor_identify(const struct tier_host *host, int runsc_fd, struct buf *b)
{
    struct stat st;
    if (host && fstat(runsc_fd, &st) == 0 && fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", b) == 0)
        (void)buf_printf(b, "%ju:%ju %ju bytes of %jd.%09ld\n", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino,
                         (uintmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/*
 * What was kept in the run directory of a runsc that runs on systrap here, so that it is asked and tried once. Where
 * nothing ran, it is tried again.
 */
static bool gvisor_recall(const char *path, struct str which, struct gvisor_runsc *runsc, struct tier_powers *powers)
{
    AUTO_BUF struct buf known = BUF_INIT(GVISOR_KNOWN);
    if (!which.n || fd_read_file(AT_FDCWD, path, &known) < 0 || !str_starts(buf_str(&known), which) ||
        buf_len(&known) < which.n + 2)
        return false;
    const char *rest = (const char *)buf_data(&known) + which.n;
    runsc->loads_late = rest[0] == '+';
    (void)snprintf(powers->version, TIER_VERSION_MAX, "%.*s", (int)(buf_len(&known) - which.n - 1), rest + 1);
    return gvisor_can_freeze();
}

/*
 * A build that bears no version is told from others by its size. Memory of one platform doesn't fit another: systrap
 * patches programs, and its addresses end earlier.
 */
static void gvisor_version(const struct gvisor_runsc *runsc, char ret_version[static TIER_VERSION_MAX])
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    struct str rest, line = STR_NULL;
    struct stat st = {0};
    if (gvisor_ask(runsc->fd, "--version", NULL, &text) < 0 || fstat(runsc->fd, &st) < 0)
        return;
    rest = buf_str(&text);
    (void)str_split(&rest, '\n', &line);
    (void)snprintf(ret_version, TIER_VERSION_MAX, "%.*s, %lld bytes%s", (int)MIN(line.n, (size_t)48), line.p,
                   (long long)st.st_size, runsc->is_ptraced ? "" : ", systrap");
}

static int gvisor_learn(struct gvisor_runsc *runsc, struct tier_powers *powers, struct err *err)
{
    AUTO_BUF struct buf flags = BUF_INIT(1 << 20), restore = BUF_INIT(1 << 16);
    int r = gvisor_ask(runsc->fd, "flags", NULL, &flags);
    r = r ? r : gvisor_ask(runsc->fd, "help", "restore", &restore);
    if (r < 0)
        return err_errno(err, r, "ask runsc what it can do");
    (void)buf_append_char(&flags, 0);
    (void)buf_append_char(&restore, 0);
    /* In one of 2022, `ls` of today's coreutils fails. */
    if (buf_error(&flags) || !strstr(buf_data(&flags), "systrap") || !strstr(buf_data(&flags), "-allow-suid"))
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "this runsc is too old, as Debian 12's is: put a newer one into /usr/local/bin");
    const int status = child_wait(gvisor_try(runsc->fd));
    const char *why = status ? "runs no program" : gvisor_can_freeze() ? NULL : "can't be frozen";
    if (why)
        log_warn("runsc %s on the platform systrap here (status %d): it gets ptrace, which is slower", why, status);
    runsc->is_ptraced = why;
    runsc->loads_late = !buf_error(&restore) && strstr(buf_data(&restore), "-background");
    gvisor_version(runsc, powers->version);
    return 0;
}

static void gvisor_keep(const char *path, struct buf *which, const struct gvisor_runsc *runsc,
                        const struct tier_powers *powers)
{
    (void)buf_printf(which, "%c%s", runsc->loads_late ? '+' : '-', powers->version);
    if (buf_error(which) || fd_write_file(AT_FDCWD, path, buf_str(which), 0600) < 0)
        log_warn("runsc is tried at each start: %s can't be written", path);
}

static int gvisor_probe(const struct tier_host *host, struct tier_powers *ret_powers, struct err *err)
{
    AUTO_BUF struct buf which = BUF_INIT(GVISOR_KNOWN);
    AUTO_CLOSE int fd = gvisor_find();
    struct gvisor_runsc found = {.fd = fd};
    char path[PATH_MAX];
    if (fd < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "there is no runsc in /usr/bin or /usr/local/bin: install gVisor");
    gvisor_identify(host, fd, &which);
    (void)snprintf(path, sizeof(path), "%s/" GVISOR_TRIED, host ? host->run_dir : "");
    if (!gvisor_recall(path, buf_str(&which), &found, ret_powers)) {
        if (gvisor_learn(&found, ret_powers, err) < 0)
            return -1;
        if (buf_len(&which) && !found.is_ptraced && ret_powers->version[0])
            gvisor_keep(path, &which, &found, ret_powers);
    }
    ret_powers->memory = ret_powers->version[0] != 0;
    (void)fd_close(gvisor_runsc.fd);
    gvisor_runsc = found;
    (void)TAKE_FD(fd);
    return 0;
}

static int gvisor_try_out(char *ret_seen, size_t size, struct err *err UNUSED)
{
    (void)snprintf(ret_seen, size, "on the platform %s",
                   gvisor_runsc.is_ptraced ? "ptrace, which is slower: systrap can't be used here" : "systrap");
    return 0;
}

static int gvisor_blank(const struct tier_host *host, struct box *box, struct err *err)
{
    struct container_birth b;
    int tree = -1;
    root_name(box);
    box->carried_fd = fcntl(gvisor_runsc.fd, F_DUPFD_CLOEXEC, 0); /* what starts it is what it is saved by */
    if (box->carried_fd < 0)
        return err_errno(err, errno, "copy a descriptor");
    int r = group_make(host, box);
    r = r || gvisor_runsc.is_ptraced ? r : gvisor_still_make(host, box);
    if (r < 0)
        return err_errno(err, r, "make control group %s", box->group);
    r = stage_tree_take(host->stage, &box->tree, &tree);
    (void)fd_close(tree);
    if (r < 0)
        return err_errno(err, r, "make a tree for /dev and /sys");
    box->has_tree = true;
    if (container_birth_begin(host, box, &b, err) < 0)
        return -1;
    pid_t pid = namespace_spawn(b.door.group_fd, root_base(host, box), CLONE_PARENT | CLONE_NEWNET, &box->pidfd);
    if (pid == 0)
        gvisor_child(b.theirs, host, &b.door, box, &gvisor_runsc);
    if (container_birth_end(host, box, &b, pid, true, err) < 0)
        return -1;
    if (box->net.ns >= 0)
        r = netns_gate_move(&box->net, host->net_fd, pid);
    r = r ? r : fd_send(box->sock, (char[]){TIER_MAPPED}, 1, NULL, 0);
    return r < 0 ? err_errno(err, r, "set up namespaces") : 0;
}

static int gvisor_set_limits(const struct tier_host *host, struct box *box, const struct tier_limits *limits,
                             struct err *err)
{
    struct tier_limits l = *limits;
    l.pids *= 4; /* of the host: a task inside is a few threads of the sentry's */
    int r = group_limit(host, box, &l);
    if (r < 0)
        return err_errno(err, r, "set limits");
    box->limits = *limits;
    return 0;
}

static int gvisor_dress(const struct tier_host *host, struct box *box, const struct tier_dress *how, struct err *err)
{
    return gvisor_set_limits(host, box, &how->limits, err) < 0 ? -1 : container_dress_root(host, box, how, false, err);
}

static int gvisor_start(const struct tier_host *host, struct box *box, const struct tier_spec *spec,
                        int *ret_session_fd, struct err *err)
{
    if (gvisor_set_limits(host, box, &spec->limits, err) < 0 || group_limit_disk(host, box, spec->disk_bytes, err) < 0)
        return -1;
    return container_session(box, spec->id, spec->template_id, ret_session_fd, err);
}

static int gvisor_usage(const struct tier_host *host, struct box *box, usec_t age UNUSED, struct tier_usage *ret_usage)
{
    struct cgroup_usage raw;
    return group_usage(host, box, ret_usage, &raw);
}

const struct tier tier_gvisor = {
    .name = "gvisor",
    .summary = "a kernel of its own in user space serves its system calls (runsc)",
    .ready = 2,
    .halts = true,
    .network = NETNS_GATE,
    .probe = gvisor_probe,
    .try_out = gvisor_try_out,
    .blank = gvisor_blank,
    .dress = gvisor_dress,
    .start = gvisor_start,
    .session = container_session,
    .adopt = container_adopt_carried,
    .clean = container_clean_carried,
    .freeze = gvisor_freeze,
    .is_frozen = gvisor_is_frozen,
    .yield = group_yield,
    .reclaim = group_reclaim,
    .usage = gvisor_usage,
    .oom_kills = group_oom_kills,
    .snapshot = files_snapshot,
    .checkpoint = gvisor_checkpoint,
    .go_on = gvisor_go_on,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systrap has a program's memory mapped by a thread that waits in a system call filter for the sentry's answer. The
 * freezer takes it out of that wait, and when it is thawed it asks once more: a new question, counted once more, while
 * the old one stays counted if it was not read. The sentry, which takes a count for a question, reads where there is
 * none, gets ENOENT, and kills the program.
 *
 *  1. So it is stopped before the others are frozen: it reads nothing while they are being taken out.
 *  2. Before they are thawed, when each question that is counted is gone, all of them are read here: ENOENT for each.
 *     The read that finds none left waits, until a timer ends it.
 *  3. It goes on when they do. A coved that takes over thaws whatever is not to stand still, and so lets it go on, too.
 */
#include "tier/gvisor_still.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "tier/group.h"
#include "tier/gvisor_child.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#define STILL_LISTENER "anon_inode:seccomp notify"

enum {
    STILL_TICK_USEC = 20,
    STILL_SETTLE_USEC = 1000000,
    STILL_STOP_USEC = 50000,
    STILL_LOOK_USEC = 50,
    STILL_PATH = 64,
    STILL_STAT = 1024,
};

/* ---- the sentry ---- */

/* Of a process or thread, "PID/stat" or so: its state, and its parent. */
static int still_look(int proc_fd, const char *path, char *ret_state, pid_t *ret_parent)
{
    AUTO_BUF struct buf text = BUF_INIT(STILL_STAT);
    int r = fd_read_file(proc_fd, path, &text);
    (void)buf_append_char(&text, 0);
    const char *at = r < 0 || buf_error(&text) ? NULL : strrchr(buf_data(&text), ')');
    if (!at || at[1] != ' ' || !at[2] || at[3] != ' ')
        return -ESRCH;
    *ret_state = at[2];
    *ret_parent = (pid_t)strtol(at + 4, NULL, 10);
    return 0;
}

static int still_children(const struct tier_host *host, pid_t pid, struct buf *ret_pids)
{
    char path[STILL_PATH];
    (void)snprintf(path, sizeof(path), "%d/task/%d/children", (int)pid, (int)pid);
    buf_clear(ret_pids);
    return fd_read_file(host->proc_fd, path, ret_pids);
}

/* The one that started it: the first process, or, where that had to wait for the box's owner, its child. */
static pid_t still_starter(const struct tier_host *host, const struct box *box)
{
    AUTO_BUF struct buf text = BUF_INIT(STILL_STAT);
    char path[STILL_PATH];
    struct str rest, word;
    uint64_t pid = 0;
    (void)snprintf(path, sizeof(path), "%d/comm", (int)box->pid);
    if (fd_read_file(host->proc_fd, path, &text) < 0 || !str_starts(buf_str(&text), STR(GVISOR_HOLDER)) ||
        still_children(host, box->pid, &text) < 0)
        return box->pid;
    rest = buf_str(&text);
    return str_split(&rest, ' ', &word) && str_to_u64(word, &pid) == 0 ? (pid_t)pid : box->pid;
}

/* Calls fn for each child of that; `pidfd` is borrowed. 0, or what fn said. */
static int still_each(const struct tier_host *host, const struct box *box,
                      int (*fn)(const struct tier_host *host, pid_t pid, int pidfd, void *ctx), void *ctx)
{
    const pid_t starter = still_starter(host, box);
    AUTO_BUF struct buf children = BUF_INIT(1 << 16);
    char path[STILL_PATH], state;
    struct str word;
    pid_t parent = 0;
    int r = still_children(host, starter, &children);
    struct str rest = buf_str(&children);
    while (r == 0 && str_split(&rest, ' ', &word)) {
        uint64_t pid = 0;
        if (str_to_u64(word, &pid) < 0)
            continue;
        AUTO_CLOSE int pidfd = pidfd_open((pid_t)pid, 0);
        (void)snprintf(path, sizeof(path), "%d/stat", (int)pid);
        /* What is its child now and lives afterwards is what pidfd is of. */
        if (pidfd >= 0 && still_look(host->proc_fd, path, &state, &parent) == 0 && parent == starter &&
            pidfd_send_signal(pidfd, 0, NULL, 0) == 0)
            r = fn(host, (pid_t)pid, pidfd, ctx);
    }
    return r;
}

static bool still_is_stopped(int proc_fd, pid_t pid)
{
    char path[STILL_PATH], state = 0;
    pid_t parent = 0;
    (void)snprintf(path, sizeof(path), "%d/task", (int)pid);
    AUTO(dir_close) DIR *dir = dir_open(proc_fd, path);
    for (const struct dirent *e; (e = dir_next(dir));) {
        (void)snprintf(path, sizeof(path), "%d/task/%.16s/stat", (int)pid, e->d_name);
        if (still_look(proc_fd, path, &state, &parent) == 0 && !strchr("TtZX", state))
            return false;
    }
    return true;
}

static int still_stop(const struct tier_host *host, pid_t pid, int pidfd, void *ctx UNUSED)
{
    const usec_t until = clock_mono() + STILL_STOP_USEC;
    if (pidfd_send_signal(pidfd, SIGSTOP, NULL, 0) < 0)
        return -errno;
    while (!still_is_stopped(host->proc_fd, pid)) {
        if (clock_mono() > until)
            return -ETIMEDOUT;
        (void)usleep(STILL_LOOK_USEC);
    }
    return 0;
}

static int still_go_on(const struct tier_host *host UNUSED, pid_t pid UNUSED, int pidfd, void *ctx UNUSED)
{
    return pidfd_send_signal(pidfd, SIGCONT, NULL, 0) < 0 && errno != ESRCH ? -errno : 0;
}

/* ---- what it has not read ---- */

static void still_ticked(int signal UNUSED)
{
}

/* The timer's signals end the wait of a system call; they don't restart it. */
static int still_tick(void)
{
    const struct sigaction action = {.sa_handler = still_ticked};
    const struct itimerval every = {{0, STILL_TICK_USEC}, {0, STILL_TICK_USEC}};
    child_unblock();
    return sigaction(SIGALRM, &action, NULL) < 0 || setitimer(ITIMER_REAL, &every, NULL) < 0 ? -errno : 0;
}

static int still_settle_filter(int listener_fd, usec_t until)
{
    struct pollfd p = {.fd = listener_fd};
    if (poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
        return 0; /* whose threads have ended; reading there never waits */
    for (;;) {
        struct seccomp_notif gone = {.id = 0};
        if (ioctl(listener_fd, SECCOMP_IOCTL_NOTIF_RECV, &gone) == 0)
            return -EBUSY; /* one that waits: it was not frozen */
        if (errno == EINTR)
            return 0;
        if (errno != ENOENT)
            return -errno;
        if (clock_mono() > until)
            return -ETIMEDOUT;
    }
}

/* All filters that this process answers. */
static int still_settle(const struct tier_host *host, pid_t pid, int pidfd, void *ctx)
{
    const usec_t *until = ctx;
    char path[STILL_PATH], link[sizeof(STILL_LISTENER)];
    (void)snprintf(path, sizeof(path), "%d/fd", (int)pid);
    AUTO(dir_close) DIR *dir = dir_open(host->proc_fd, path);
    int r = dir ? 0 : -errno;
    for (const struct dirent *e; r == 0 && (e = dir_next(dir));) {
        const ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link));
        if (n != sizeof(link) - 1 || memcmp(link, STILL_LISTENER, sizeof(link) - 1) != 0)
            continue;
        AUTO_CLOSE int fd = pidfd_getfd(pidfd, (int)strtol(e->d_name, NULL, 10), 0);
        r = fd < 0 ? -errno : still_settle_filter(fd, *until);
    }
    return r;
}

/* In a process of its own, whose timer is nobody else's. */
static int still_settle_all(const struct tier_host *host, const struct box *box)
{
    const pid_t pid = fork();
    if (pid == 0) {
        usec_t until = clock_mono() + STILL_SETTLE_USEC;
        int r = prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ? -errno : still_tick();
        _exit(-(r ? r : still_each(host, box, still_settle, &until)));
    }
    const int status = pid < 0 ? -errno : child_wait(pid);
    return status < 0 ? status : status < CHILD_SIGNAL ? -status : -EINTR;
}

static void still_tell(const struct box *box, const char *what, int r)
{
    if (r < 0)
        log_warn("%s the sentry of box %s: %s", what, box->name, strerror(-r));
}

int gvisor_freeze(const struct tier_host *host, struct box *box, bool frozen)
{
    if (frozen)
        still_tell(box, "stop", still_each(host, box, still_stop, NULL));
    else if (group_is_frozen(host, box) > 0)
        still_tell(box, "settle the filters of", still_settle_all(host, box));
    int r = group_freeze(host, box, frozen);
    if (!frozen)
        still_tell(box, "let go on", still_each(host, box, still_go_on, NULL));
    return r;
}

bool gvisor_can_freeze(pid_t pid)
{
    AUTO_CLOSE int pidfd = pidfd_open(pid, 0);
    AUTO_CLOSE int fd = pidfd < 0 ? -1 : pidfd_getfd(pidfd, STDIN_FILENO, 0);
    return fd >= 0;
}

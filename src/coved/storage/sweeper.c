/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/sweeper.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernel/pool/pool.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LEAST_PAUSE_MS = 20,
    AGAIN_MS = 1000,
    SWEEPER_NICE = 10,
    TELL_MS = 4000,
    GROW_MS = 500,
    QUIET_MS = 100, /* nobody makes or ends sandboxes: time to delete what they left and to make ready what they took */
    BUSY_MS = 2000, /* for so long in a row at most */
    AT_ONCE = 8,
    OWNERS_MS = 60000,
};

struct sweeper {
    struct pool *pool;
    int pipe_fd; /* a byte: look; closed: end */
    int newer;   /* descriptors of this number and above are not the process's business */
    pid_t pid;   /* 0: it died */
    usec_t told, started;
};

static int sweep(struct pool *pool, int most)
{
    int r = pool_sweep_some(pool, most);
    if (r < 0)
        log_warn("empty the pool's trash: %s", strerror(-r));
    return r;
}

/* In time for those who write: an eighth of a second's worth of a fast disk is far less than a quarter of the pool. */
static void grow(struct pool *pool, usec_t *looked)
{
    static bool failed;
    usec_t now = clock_mono();
    if (now - *looked < GROW_MS * USEC_PER_MS / 4)
        return;
    *looked = now;
    int r = pool_grow(pool);
    if (r > 0)
        log_info("the storage pool has grown");
    else if (r < 0 && !failed)
        log_warn("the storage pool can't grow: %s", strerror(-r));
    failed = r < 0;
    int later UNUSED = pool_secure(pool);
}

/*
 * Whether more should be done. With quotas, btrfs of newer kernels (seen on Linux 6.18) commits once for each subvolume
 * that it drops, and whoever makes a snapshot meanwhile waits for that.
 */
static bool tidy(struct pool *pool, int most, usec_t *tidied)
{
    static usec_t looked;
    *tidied = clock_mono();
    if (*tidied - looked >= OWNERS_MS * USEC_PER_MS) {
        looked = *tidied;
        int later UNUSED = pool_owners_tidy(pool);
    }
    int swept = sweep(pool, most), r = pool_stock_fill(pool, AT_ONCE);
    if (r < 0 && r != -ENOSPC && r != -EDQUOT)
        log_warn("prepare empty boxes: %s", strerror(-r));
    return swept == most || r == AT_ONCE;
}

/* A byte, or the end of them. */
static int await_byte(struct pool *pool, int from, usec_t *looked, usec_t *tidied)
{
    struct pollfd p = {.fd = from, .events = POLLIN};
    const int rest_ms = pool_is_backed(pool) ? GROW_MS : -1;
    bool is_due = true;
    int n;
    if (clock_mono() - *tidied > BUSY_MS * USEC_PER_MS)
        is_due = tidy(pool, INT_MAX, tidied);
    do {
        grow(pool, looked);
        n = poll(&p, 1, is_due ? QUIET_MS : rest_ms);
        if (n == 0 && is_due)
            is_due = tidy(pool, AT_ONCE, tidied);
    } while (n == 0);
    return n;
}

NORETURN static void sweeper_run(struct pool *pool, int from)
{
    child_unblock();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)setpriority(PRIO_PROCESS, 0, SWEEPER_NICE);
    usec_t looked = 0, tidied = clock_mono();
    for (;;) {
        char told[256];
        if (await_byte(pool, from, &looked, &tidied) < 0 || read(from, told, sizeof(told)) <= 0)
            _exit(0);
        /* Deleting in batches costs less than waking for each sandbox. */
        (void)poll(NULL, 0, LEAST_PAUSE_MS);
    }
}

static int last_descriptor(void)
{
    AUTO(dir_close) DIR *dir = dir_open(AT_FDCWD, "/proc/self/fd");
    int last = -1;
    if (!dir)
        return 1023;
    for (const struct dirent *e; (e = dir_next(dir));) {
        uint64_t fd;
        if (str_to_u64(str_of(e->d_name), &fd) == 0 && fd < INT32_MAX && (int)fd != dirfd(dir))
            last = MAX(last, (int)fd);
    }
    return last;
}

/* Of the descriptors it gets those that were there at the first start: the pool's are among them. */
static int sweeper_spawn(struct sweeper *s, struct err *err)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_errno(err, errno, "make a pipe");
    if (!s->newer)
        s->newer = MAX(last_descriptor(), 2) + 1;
    pid_t pid = fork();
    if (pid == 0) {
        (void)fd_close(p[1]);
        int from = p[0] <= s->newer ? p[0] : dup2(p[0], s->newer);
        (void)close_range((unsigned)s->newer + 1, ~0U, 0);
        sweeper_run(s->pool, from);
    }
    (void)fd_close(p[0]);
    if (pid < 0) {
        (void)fd_close(p[1]);
        return err_errno(err, errno, "start the sweeper");
    }
    s->pipe_fd = p[1];
    s->pid = pid;
    return 0;
}

int sweeper_start(struct pool *pool, struct sweeper **ret_sweeper, struct err *err)
{
    struct sweeper *s = mem_new(struct sweeper);
    s->pool = pool;
    if (sweeper_spawn(s, err) < 0) {
        mem_free(s);
        return -1;
    }
    *ret_sweeper = s;
    return 0;
}

static void look_after(struct sweeper *s, usec_t now)
{
    struct err err;
    if (s->pid > 0 && waitpid(s->pid, NULL, WNOHANG) == 0)
        return;
    if (s->pid > 0) {
        log_error("the process that empties the pool's trash died: another one is started");
        s->pipe_fd = fd_close(s->pipe_fd);
        s->pid = 0;
    }
    if (now - s->started < AGAIN_MS * USEC_PER_MS)
        return;
    s->started = now;
    if (sweeper_spawn(s, &err) < 0)
        log_error("%s", err.msg);
}

void sweeper_tick(struct sweeper *s)
{
    usec_t now = clock_mono();
    look_after(s, now);
    if (now - s->told < LEAST_PAUSE_MS * USEC_PER_MS)
        return;
    s->told = now;
    ssize_t ignored UNUSED = write(s->pipe_fd, "", 1); /* full: it has been told */
}

void sweeper_stop(struct sweeper *s)
{
    if (s->pid > 0) {
        (void)fd_close(s->pipe_fd);
        (void)kill(s->pid, SIGTERM);
        (void)waitpid(s->pid, NULL, 0);
    }
    mem_free(s);
}

static size_t left_in(struct pool *pool)
{
    AUTO(dir_close) DIR *dir = dir_open(pool_fd(pool), "trash");
    size_t n = 0;
    while (dir_next(dir))
        n++;
    return n;
}

/* True when the process ended before `end`. */
static bool sweeper_await(int pidfd, usec_t end)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    for (;;) {
        usec_t now = clock_mono();
        uint64_t wait_ms = now < end ? (end - now + USEC_PER_MS - 1) / USEC_PER_MS : 0;
        int n = poll(&p, 1, (int)MIN(wait_ms, (uint64_t)TELL_MS));
        if (n > 0 || (n < 0 && errno != EINTR))
            return n > 0;
        if (wait_ms == 0)
            return false;
        if (n == 0 && wait_ms > TELL_MS)
            log_info("deleting files of sandboxes that have ended, for at most another %llu s",
                     (unsigned long long)((wait_ms - TELL_MS + 999) / 1000));
    }
}

size_t sweeper_last(struct pool *pool, uint32_t bound_ms)
{
    usec_t end = clock_mono() + bound_ms * USEC_PER_MS;
    if (left_in(pool) == 0)
        return 0;
    pid_t pid = fork(); /* signals stay blocked: who interrupts us a second time does not end it */
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        (void)sweep(pool, INT_MAX);
        _exit(0);
    }
    if (pid > 0) {
        AUTO_CLOSE int pidfd = pidfd_open(pid, 0);
        if (!sweeper_await(pidfd, end))
            (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    return left_in(pool);
}

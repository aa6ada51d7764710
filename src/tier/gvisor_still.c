/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On systrap, each address space inside is a process of the host's, a "mapper". It makes the system calls that the
 * sentry wants there (mmap, mostly), and waits for the next one in a seccomp filter that asks the sentry, as if it
 * ended. Its children, "runners", run the program. All are in the control group.
 *
 *  1. A mapper is never frozen. The freezer would take it out of the filter's wait. The kernel (seen in 6.18) then
 *     forgets the question but not its count, or loses the answer that was just given; the sentry reads ENOENT, or
 *     takes a call for done that was not, and the program dies. To correct the counts before the thaw is no cure: the
 *     sentry may attach to a mapper whose question it hasn't read again yet, which adds another.
 *  2. So the group has a part that is frozen. First the processes with threads go there: the sentry, its gofer, and
 *     runsc. A mapper that is born there, as the first is that a sentry makes, comes back before. The others are born
 *     of that one.
 *  3. Once they are frozen, nobody tells a mapper anything. It is done when it sleeps in that wait or in a futex, or is
 *     stopped for a tracer. Nothing inside can wake it: a runner's own filter lets it wait for futexes and return from
 *     signals, nothing else, and a mapper blocks all signals.
 *  4. Then runners go to the part, which freezes them. The box stands still when nobody else is left in the group.
 *  5. All this is done by a child of coved's, as a move waits for the kernel, and ends with coved. To thaw the part is
 *     one step, whatever was frozen of it; nobody is moved then. So a coved that takes over has nothing to look for.
 *     Only who takes a freeze back waits, for that child's end.
 *
 * A sentry that somebody has taken over could keep a process out of the part. What is done with a frozen box must not
 * rely on it for more than a box's own good.
 */
#include "tier/gvisor_still.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/str.h"
#include "tier/group.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STILL_PROCESSES = 1 << 14, STILL_TEXT = 1 << 18, STILL_STAT = 1024, STILL_PATH = 32 };
enum { STILL_LOOK_USEC = 50, STILL_LOOK_MOST_USEC = 5000 };

enum still_kind { STILL_DEAD, STILL_THREADED, STILL_MAPPER, STILL_RUNNER };

struct still_process {
    pid_t pid, parent;
    char state;
    bool is_threaded, in_part;
};

struct still {
    const struct tier_host *host;
    const struct box *box;
    struct still_process *at; /* borrowed; STILL_PROCESSES */
    size_t n;
};

/* ---- what there is ---- */

/* The fields of proc_pid_stat(5) after the name, which may be anything: the state is the third of all. */
static int still_parse(struct str text, struct still_process *p)
{
    enum { STATE = 3, PARENT = 4, THREADS = 20 };
    const char *end = memrchr(text.p, ')', text.n);
    struct str word, rest = end ? str_sub(text, (size_t)(end - text.p) + 1) : STR_NULL;
    uint64_t v = 0;
    (void)str_split(&rest, ' ', &word); /* nothing is before the first blank */
    for (int field = STATE; field <= THREADS; field++) {
        if (!str_split(&rest, ' ', &word) || word.n == 0)
            return -EINVAL;
        if (field == STATE)
            p->state = word.p[0];
        else if ((field == PARENT || field == THREADS) && str_to_u64(word, &v) < 0)
            return -EINVAL;
        if (field == PARENT)
            p->parent = (pid_t)v;
    }
    p->is_threaded = v > 1;
    return 0;
}

static int still_add(struct still *s, struct str pids, bool in_part)
{
    AUTO_BUF struct buf stat = BUF_INIT(STILL_STAT);
    char path[STILL_PATH];
    struct str line;
    uint64_t pid;
    while (str_split(&pids, '\n', &line)) {
        if (line.n == 0 || str_to_u64(line, &pid) < 0)
            continue;
        if (s->n == STILL_PROCESSES)
            return -E2BIG;
        struct still_process *p = &s->at[s->n];
        *p = (struct still_process){.pid = (pid_t)pid, .in_part = in_part};
        (void)snprintf(path, sizeof(path), "%d/stat", (int)pid);
        buf_clear(&stat);
        int r = fd_read_file(s->host->proc_fd, path, &stat);
        r = r ? r : still_parse(buf_str(&stat), p);
        if (r == 0)
            s->n++;
        else if (r != -ENOENT && r != -ESRCH)
            return r;
    }
    return 0;
}

static int still_look(struct still *s)
{
    int r = 0;
    s->n = 0;
    for (int in_part = 0; r == 0 && in_part < 2; in_part++) {
        AUTO_BUF struct buf pids = BUF_INIT(STILL_TEXT);
        r = cgroup_part_processes(s->host->cgroups, s->box->group, in_part, &pids);
        r = r ? r : still_add(s, buf_str(&pids), in_part);
    }
    return r;
}

/* Whoever started the sentry is one with threads, too, but for the box's first process, which may be of ours. */
static bool still_is_threaded(const struct still *s, const struct still_process *p)
{
    return p->is_threaded || p->pid == s->box->pid;
}

static enum still_kind still_kind(const struct still *s, const struct still_process *p)
{
    if (strchr("ZX", p->state))
        return STILL_DEAD;
    if (still_is_threaded(s, p))
        return STILL_THREADED;
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].pid == p->parent)
            return still_is_threaded(s, &s->at[i]) ? STILL_MAPPER : STILL_RUNNER;
    return STILL_MAPPER; /* its parent has just gone; not to freeze it is safe for what runs in there */
}

static bool still_waits(const struct still *s, const struct still_process *p)
{
    AUTO_BUF struct buf text = BUF_INIT(STILL_STAT);
    char path[STILL_PATH];
    struct str rest, word;
    uint64_t number = 0;
    if (strchr("tT", p->state))
        return true;
    (void)snprintf(path, sizeof(path), "%d/syscall", (int)p->pid);
    if (p->state != 'S' || fd_read_file(s->host->proc_fd, path, &text) < 0)
        return false;
    rest = buf_str(&text);
    return str_split(&rest, ' ', &word) && str_to_u64(word, &number) == 0 &&
           (number == SYS_exit_group || number == SYS_futex);
}

/* ---- in two steps ---- */

/* Whoever has gone meanwhile needs no move. */
static int still_move(const struct still *s, const struct still_process *p, bool into)
{
    int r = cgroup_part_move(s->host->cgroups, s->box->group, p->pid, into);
    return r == -ESRCH ? 0 : r;
}

/*
 * 1 once the sentry's own are told to stand still; 0: not yet. A sentry without a mapper is still beginning. That one
 * waits tells it from what only hasn't made its threads yet.
 */
static int still_first(struct still *s)
{
    bool has_mapper = false, is_settled = true;
    int r = still_look(s);
    for (size_t i = 0; r == 0 && i < s->n; i++) {
        const struct still_process *p = &s->at[i];
        const enum still_kind kind = still_kind(s, p);
        const bool is_wrong = (kind == STILL_THREADED && !p->in_part) || (kind == STILL_MAPPER && p->in_part);
        has_mapper = has_mapper || (kind == STILL_MAPPER && !p->in_part && still_waits(s, p));
        is_settled &= !is_wrong;
        r = is_wrong ? still_move(s, p, kind == STILL_THREADED) : 0;
    }
    if (r < 0 || !has_mapper || !is_settled)
        return r;
    r = cgroup_part_freeze(s->host->cgroups, s->box->group, true);
    return r ? r : 1;
}

/* 1 once all of it does. */
static int still_rest(struct still *s)
{
    bool is_settled = true;
    int r = cgroup_part_is_frozen(s->host->cgroups, s->box->group);
    if (r <= 0)
        return r;
    r = still_look(s);
    for (size_t i = 0; r == 0 && i < s->n; i++) {
        const struct still_process *p = &s->at[i];
        const enum still_kind kind = p->in_part ? STILL_DEAD : still_kind(s, p);
        if (kind == STILL_MAPPER) {
            is_settled &= still_waits(s, p);
        } else if (kind != STILL_DEAD) {
            r = still_move(s, p, true);
            is_settled = false;
        }
    }
    return r < 0 || !is_settled ? r : 1;
}

static int still_all(const struct tier_host *host, const struct box *box)
{
    static int (*const steps[])(struct still * s) = {still_first, still_rest};
    static struct still_process processes[STILL_PROCESSES];
    struct still s = {.host = host, .box = box, .at = processes};
    int r = 1;
    for (size_t i = 0; r > 0 && i < ARRAY_SIZE(steps); i++)
        for (useconds_t look = STILL_LOOK_USEC; (r = steps[i](&s)) == 0;
             look = MIN(look * 2, (useconds_t)STILL_LOOK_MOST_USEC))
            (void)usleep(look);
    return MIN(r, 0);
}

/* ---- coved ---- */

int gvisor_still_make(const struct tier_host *host, struct box *box)
{
    int r = cgroup_part_make(host->cgroups, box->group);
    return r == -EOPNOTSUPP ? 0 : r; /* no box can be frozen here */
}

int gvisor_freeze(const struct tier_host *host, struct box *box, bool frozen)
{
    if (!cgroup_part_is_there(host->cgroups, box->group))
        return group_freeze(host, box, frozen);
    const pid_t coved = getpid();
    child_kill(box->stiller);
    box->stiller = 0;
    if (!frozen)
        return cgroup_part_freeze(host->cgroups, box->group, false);
    const pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != coved)
            _exit(1);
        _exit(-still_all(host, box));
    }
    box->stiller = pid;
    return pid < 0 ? -errno : 0;
}

int gvisor_is_frozen(const struct tier_host *host, struct box *box)
{
    int status = 0;
    if (!cgroup_part_is_there(host->cgroups, box->group))
        return group_is_frozen(host, box);
    if (box->stiller > 0) {
        const pid_t ended = waitpid(box->stiller, &status, WNOHANG);
        if (ended == 0)
            return 0;
        box->stiller = 0;
        if (ended < 0 || status != 0)
            return ended > 0 && WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
    }
    return cgroup_part_is_frozen(host->cgroups, box->group);
}

bool gvisor_can_freeze(void)
{
    AUTO_BUF struct buf text = BUF_INIT(STILL_STAT);
    char path[STILL_PATH + sizeof("/proc/")];
    const pid_t pid = fork();
    if (pid == 0)
        (void)pause();
    (void)snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
    int r = pid < 0 ? -errno : fd_read_file(AT_FDCWD, path, &text);
    child_kill(pid);
    return r == 0;
}

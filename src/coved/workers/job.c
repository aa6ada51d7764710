/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/job.h"
#include "base/child.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOB_NICE = 10, JOB_FDS_MAX = 4 };

struct job {
    struct list node; /* waiting or running */
    struct jobs *jobs;
    struct job_spec spec; /* its fds are ours */
    int fds[JOB_FDS_MAX];
    struct source pidfd, ready;
    int pid_fd, sock; /* owned; -1 before it has begun */
    usec_t end;       /* monotonic; 0: none */
    int verdict;      /* why it was killed; 0: it was not */
};

struct jobs {
    struct coved_loop *loop;
    int keep_out, lock;
    int statics_end; /* descriptors of this number and above come and go */
    struct {
        struct list waiting, background;
        size_t n; /* that run */
    } places[JOB_PLACES];
    struct list running, failed; /* failed: ended before there was a process */
    size_t n_left;
};

static const size_t job_places_max[] = {
    [JOB_COMMON] = JOBS_MAX, [JOB_BRIEF] = JOBS_MAX, [JOB_INSIDE] = JOBS_INSIDE_MAX, [JOB_SAVING] = JOBS_MAX};

/* ---- the child ---- */

static bool is_kept(const struct job_spec *spec, int fd)
{
    for (size_t i = 0; i < spec->n_fds; i++)
        if (spec->fds[i] == fd)
            return true;
    return false;
}

/* Of what is as old as coved, directories stay: the pool's are among them. Of the rest, what the job was given. */
static void close_others(const struct jobs *jobs, const struct job_spec *spec, int sock)
{
    struct stat st;
    unsigned from = (unsigned)jobs->statics_end;
    for (int fd = 3; fd < jobs->statics_end; fd++)
        if (fd != sock && fd != jobs->lock && !is_kept(spec, fd) &&
            (fd == jobs->keep_out || (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))))
            (void)close(fd);
    for (;;) { /* between those that stay */
        unsigned next = ~0U;
        if (sock >= (int)from)
            next = (unsigned)sock;
        for (size_t i = 0; i < spec->n_fds; i++)
            if (spec->fds[i] >= (int)from)
                next = MIN(next, (unsigned)spec->fds[i]);
        if (next > from)
            (void)close_range(from, next == ~0U ? next : next - 1, 0);
        if (next == ~0U)
            return;
        from = next + 1;
    }
}

NORETURN static void job_run(const struct jobs *jobs, const struct job_spec *spec, int sock, pid_t coved)
{
    int32_t answer = 0;
    char byte;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != coved)
        _exit(1);
    child_unblock();
    close_others(jobs, spec, sock);
    if (spec->is_background && spec->place == JOB_COMMON) /* what begins inside keeps what it has */
        (void)setpriority(PRIO_PROCESS, 0, JOB_NICE);
    answer = spec->prepare ? spec->prepare(spec->ctx) : 0;
    if (answer == 0 && send(sock, "", 1, MSG_NOSIGNAL) != 1)
        _exit(1);
    /* Whoever holds the other end is gone, or lets us go. */
    if (answer == 0 && (!spec->is_held || recv(sock, &byte, 1, 0) == 1))
        answer = spec->run(spec->ctx);
    ssize_t ignored UNUSED = send(sock, &answer, sizeof(answer), MSG_NOSIGNAL);
    _exit(0);
}

/* ---- coved ---- */

static void job_finish(struct job *j, int r)
{
    struct jobs *jobs = j->jobs;
    list_remove(&j->node);
    (void)fd_close(j->pid_fd);
    (void)fd_close(j->sock);
    const struct job_spec spec = j->spec;
    mem_free(j);
    jobs->n_left--;
    spec.done(spec.ctx, r);
}

static void job_on_pidfd(struct source *s, uint32_t events UNUSED)
{
    struct job *j = container_of(s, struct job, pidfd);
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)j->pid_fd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return;
    loop_remove(j->jobs->loop, &j->pidfd);
    loop_remove(j->jobs->loop, &j->ready);
    j->jobs->places[j->spec.place].n--;
    int32_t answer = 0;
    int r = j->verdict;
    ssize_t n = recv(j->sock, &answer, sizeof(answer), MSG_DONTWAIT);
    if (n == 1) { /* that it was ready; whoever holds one has nothing to let go on any more */
        if (j->spec.begun && !j->spec.is_held && !j->verdict)
            j->spec.begun(j->spec.ctx);
        n = recv(j->sock, &answer, sizeof(answer), MSG_DONTWAIT);
    }
    if (n == (ssize_t)sizeof(answer))
        r = answer; /* done, though somebody had stopped waiting */
    else if (!r)
        r = -EIO;
    if (r == -EIO)
        log_error("%s: its process ended without an answer (%s %d)", j->spec.name,
                  info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status);
    job_finish(j, r);
}

static void job_on_ready(struct source *s, uint32_t events UNUSED)
{
    struct job *j = container_of(s, struct job, ready);
    char byte[sizeof(int32_t)];
    if (recv(j->sock, byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) < 0)
        return;
    loop_remove(j->jobs->loop, s); /* what it answers is read when it has ended */
    if (recv(j->sock, byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) != 1 || j->verdict)
        return;
    (void)!recv(j->sock, byte, 1, MSG_DONTWAIT);
    if (j->spec.begun)
        j->spec.begun(j->spec.ctx);
}

static int job_spawn(struct job *j)
{
    struct jobs *jobs = j->jobs;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t coved = getpid(), pid = fork();
    if (pid == 0)
        job_run(jobs, &j->spec, pair[1], coved);
    int r = pid < 0 ? -errno : 0;
    (void)fd_close(pair[1]);
    j->sock = pair[0];
    if (r < 0)
        return r;
    j->pid_fd = pidfd_open(pid, 0);
    r = j->pid_fd < 0 ? -errno : loop_add(jobs->loop, &j->pidfd, j->pid_fd, EPOLLIN, job_on_pidfd);
    if (r == 0 && (r = loop_add(jobs->loop, &j->ready, j->sock, EPOLLIN, job_on_ready)) < 0)
        loop_remove(jobs->loop, &j->pidfd);
    if (r < 0)
        child_kill(pid);
    return r;
}

static void job_begin(struct job *j)
{
    struct jobs *jobs = j->jobs;
    list_remove(&j->node);
    int r = job_spawn(j);
    if (r < 0) {
        j->verdict = r;
        list_append(&jobs->failed, &j->node);
        return;
    }
    jobs->places[j->spec.place].n++;
    j->end = j->spec.limit_ms ? clock_mono() + j->spec.limit_ms * USEC_PER_MS : 0;
    list_append(&jobs->running, &j->node);
}

struct jobs *jobs_new(struct coved_loop *loop, int keep_out, int lock)
{
    struct jobs *jobs = mem_new(struct jobs);
    jobs->loop = loop;
    jobs->keep_out = keep_out;
    jobs->lock = lock;
    for (size_t i = 0; i < JOB_PLACES; i++) {
        list_init(&jobs->places[i].waiting);
        list_init(&jobs->places[i].background);
    }
    list_init(&jobs->running);
    list_init(&jobs->failed);
    jobs->statics_end = 3;
    AUTO(dir_close) DIR *dir = dir_open(AT_FDCWD, "/proc/self/fd");
    for (const struct dirent *e; (e = dir_next(dir));) {
        uint64_t fd;
        if (str_to_u64(str_of(e->d_name), &fd) == 0 && fd < INT32_MAX && (int)fd != dirfd(dir))
            jobs->statics_end = MAX(jobs->statics_end, (int)fd + 1);
    }
    return jobs;
}

void jobs_free(struct jobs *jobs)
{
    assert(jobs->n_left == 0);
    mem_free(jobs);
}

size_t jobs_left(const struct jobs *jobs)
{
    return jobs->n_left;
}

/* Of these, the next one that may begin; NULL: none. */
static struct job *job_next(struct jobs *jobs, enum job_place place)
{
    if (jobs->places[place].n >= job_places_max[place])
        return NULL;
    struct job *j = LIST_FIRST(struct job, &jobs->places[place].waiting, node);
    return j || (place != JOB_COMMON && jobs->places[place].n)
               ? j
               : LIST_FIRST(struct job, &jobs->places[place].background, node);
}

usec_t jobs_tick(struct jobs *jobs)
{
    usec_t next = UINT64_MAX, now = clock_mono();
    struct job *j;
    while ((j = LIST_FIRST(struct job, &jobs->failed, node)))
        job_finish(j, j->verdict);
    for (enum job_place p = 0; p < JOB_PLACES; p++)
        while ((j = job_next(jobs, p)))
            job_begin(j);
    LIST_FOREACH (struct job, r, &jobs->running, node) {
        if (r->end && now >= r->end) {
            r->end = 0;
            r->verdict = -ETIMEDOUT;
            (void)pidfd_send_signal(r->pid_fd, SIGKILL, NULL, 0);
        }
        next = r->end ? MIN(next, r->end) : next;
    }
    return list_empty(&jobs->failed) ? next : 0;
}

struct job *job_add(struct jobs *jobs, const struct job_spec *spec)
{
    struct job *j = mem_new(struct job);
    j->jobs = jobs;
    j->spec = *spec;
    j->spec.fds = j->fds;
    assert(spec->n_fds <= ARRAY_SIZE(j->fds));
    for (size_t i = 0; i < spec->n_fds; i++)
        j->fds[i] = spec->fds[i];
    j->pid_fd = j->sock = j->pidfd.fd = j->ready.fd = -1;
    list_init(&j->node);
    jobs->n_left++;
    list_append(spec->is_background ? &jobs->places[spec->place].background : &jobs->places[spec->place].waiting,
                &j->node);
    return j;
}

void job_go(struct job *job)
{
    assert(job->pid_fd >= 0);
    ssize_t ignored UNUSED = send(job->sock, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* it died: so says its pidfd */
}

void job_kill(struct job *job)
{
    if (job->verdict)
        return;
    job->verdict = -ECANCELED;
    if (job->pid_fd >= 0) {
        (void)pidfd_send_signal(job->pid_fd, SIGKILL, NULL, 0);
    } else {
        list_remove(&job->node);
        list_append(&job->jobs->failed, &job->node);
    }
}

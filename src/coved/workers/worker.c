/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/worker.h"
#include "base/child.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/foreign.h"
#include "coved/workers/outbox.h"
#include "coved/workers/records.h"
#include "kernel/caps.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/namespace.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WORKER_BUFFER_BYTES = 8 << 20,
    WORKER_YOUNG_USEC = 5 * 1000000,
    WORKER_DELAY_LEAST_MS = 100,
    WORKER_DELAY_MOST_MS = 500,
    STOP_MS = 5000,
    ABORT_MS = 2000,
    ARGS_MAX = 128,
    WORKER_OPEN_FILES = 262144,
};

struct worker {
    struct coved_loop *loop;
    struct worker_spec spec;
    struct source sock, pidfd, beat;
    int sock_fd, pid_fd; /* owned */
    pid_t pid;
    struct worker_pulse pulse;
    struct outbox outbox;
    usec_t started, start_at, kill_at; /* monotonic; 0: not set */
    uint64_t delay_ms;
    bool stopping, is_due; /* is_due: to be replaced, on purpose */
    unsigned stillborn;
};

struct worker *worker_new(struct coved_loop *loop, const struct worker_spec *spec)
{
    struct worker *w = mem_new(struct worker);
    w->loop = loop;
    w->spec = *spec;
    w->sock.fd = w->pidfd.fd = w->beat.fd = w->sock_fd = w->pid_fd = -1;
    w->pulse = PULSE_NONE;
    w->start_at = clock_mono();
    outbox_init(&w->outbox);
    return w;
}

static void stop_asking(struct worker *w)
{
    loop_remove(w->loop, &w->beat);
    pulse_close(&w->pulse);
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    stop_asking(w);
    loop_remove(w->loop, &w->sock);
    loop_remove(w->loop, &w->pidfd);
    outbox_clear(&w->outbox);
    (void)foreign_close(w->sock_fd);
    (void)fd_close(w->pid_fd);
    mem_free(w);
}

NORETURN static void die(const char *step)
{
    log_error("start a worker: %s: %s", step, strerror(errno));
    _exit(127);
}

int worker_go_to_host(const struct stage *s)
{
    bool failed =
        setns(s->host_mount_ns, CLONE_NEWNS) < 0 || fchdir(s->host_root) < 0 || chroot(".") < 0 || chdir("/") < 0;
    return failed ? -errno : 0;
}

static void drop_privileges(uid_t uid)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        die("read limits");
    files.rlim_cur = files.rlim_max = MIN(files.rlim_max, (rlim_t)WORKER_OPEN_FILES);
    if (setrlimit(RLIMIT_NOFILE, &files) < 0) /* RLIMIT_CORE is coved's already */
        die("set limits");
    /* Only lowered further by somebody with CAP_SYS_RESOURCE; coved has said so already if it may not. */
    int ignored UNUSED = fd_write_existing(AT_FDCWD, "/proc/self/oom_score_adj", STR("-500"));
    if (setgroups(0, NULL) < 0 || prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0)
        die("drop groups");
    child_unblock();
    (void)umask(077);
    gid_t gid = uid;
    if (setresgid(gid, gid, gid) < 0)
        die("change the group");
    /* The bounding set is emptied while we still may; changing the user drops the rest. */
    for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
        ;
    if (setresuid(uid, uid, uid) < 0)
        die("change the user");
    if (caps_drop_all() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        die("drop capabilities");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        die("tie to the keeper");
}

static char *worker_keep(int fd)
{
    int r = fd_cloexec(fd, false);
    if (r < 0) {
        errno = -r;
        die("pass a descriptor");
    }
    return mem_printf("%d", fd);
}

static void pass(char **argv, size_t *n, const char *option, int fd, const char *suffix)
{
    AUTO_FREE char *number = worker_keep(fd);
    assert(*n + 2 < ARGS_MAX);
    argv[(*n)++] = mem_strdup(option);
    argv[(*n)++] = mem_printf("%s%s", number, suffix);
}

NORETURN static void worker_run(const struct worker_spec *spec, int sock, int pulse_fd, int key_fd, int pem_fd)
{
    char *argv[ARGS_MAX] = {mem_strdup(spec->name)};
    char *const environment[] = {fault_environment(), NULL};
    size_t n = 1;
    pass(argv, &n, spec->control, sock, "");
    pass(argv, &n, "--pulse-fd", pulse_fd, "");
    if (key_fd >= 0)
        pass(argv, &n, "--key-fd", key_fd, "");
    if (pem_fd >= 0)
        pass(argv, &n, "--tls-fd", pem_fd, "");
    for (size_t i = 0; i < spec->n_fds; i++)
        pass(argv, &n, spec->fds[i].option, spec->fds[i].fd, spec->fds[i].suffix);
    for (char *const *a = spec->argv; *a && n + 1 < ARRAY_SIZE(argv); a++)
        argv[n++] = *a;
    if (worker_go_to_host(spec->stage) < 0)
        die("return to the host's files");
    drop_privileges(spec->uid);
    (void)execve(spec->program, argv, environment);
    die(spec->program);
}

static int key_pipe(const char *key, int *ret_fd)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    int r = fd_write_all(p[1], key, strlen(key)); /* far less than a pipe takes */
    (void)fd_close(p[1]);
    if (r < 0) {
        (void)fd_close(p[0]);
        return r;
    }
    *ret_fd = p[0];
    return 0;
}

static void on_gone(struct source *s, uint32_t events UNUSED)
{
    struct worker *w = container_of(s, struct worker, pidfd);
    int code = CLD_KILLED, status = 0;
    (void)records_exit(w->spec.records, w->pid, &code, &status);
    records_drop(w->spec.records, KEEPER_WORKER, w->spec.number);
    w->stillborn = w->pulse.has_answered ? 0 : w->stillborn + 1;
    stop_asking(w);
    loop_remove(w->loop, &w->sock);
    loop_remove(w->loop, &w->pidfd);
    outbox_clear(&w->outbox);
    w->sock_fd = foreign_close(w->sock_fd); /* with what is left in it */
    w->pid_fd = fd_close(w->pid_fd);
    w->kill_at = 0;
    if (w->stopping)
        return;
    if (w->is_due) {
        w->is_due = false;
        w->start_at = clock_mono();
        log_debug("%s is replaced", w->spec.name);
        return;
    }
    bool young = clock_mono() - w->started < WORKER_YOUNG_USEC;
    w->delay_ms = !young        ? 0
                  : w->delay_ms ? MIN(w->delay_ms * 2, (uint64_t)WORKER_DELAY_MOST_MS)
                                : WORKER_DELAY_LEAST_MS;
    w->start_at = clock_mono() + w->delay_ms * USEC_PER_MS;
    log_error("%s ended (%s %d); a new one starts in %llu ms", w->spec.name,
              code == CLD_EXITED ? "exit code" : "signal", status, (unsigned long long)w->delay_ms);
}

static void kill_it(struct worker *w, int signal)
{
    if (w->pid_fd >= 0)
        (void)pidfd_send_signal(w->pid_fd, signal, NULL, 0);
}

/* What did not go out, or goes out again, r says. */
static void settle_outbox(struct worker *w, int r)
{
    if (r == 0 && w->sock.fd >= 0)
        r = loop_change(w->loop, &w->sock, outbox_is_empty(&w->outbox) ? EPOLLIN : EPOLLIN | EPOLLOUT);
    if (r < 0 && r != -EPIPE && r != -ECONNRESET) {
        log_error("%s doesn't accept messages (%s); it is replaced", w->spec.name, strerror(-r));
        kill_it(w, SIGKILL);
    }
}

static bool closed_at_once(struct worker *w, unsigned cuts_before)
{
    if (foreign_cuts() == cuts_before)
        return true;
    log_error("%s sent a descriptor that can't be closed; it is replaced", w->spec.name);
    kill_it(w, SIGKILL);
    return false;
}

static void worker_on_sock(struct source *s, uint32_t events)
{
    struct worker *w = container_of(s, struct worker, sock);
    if (events & EPOLLOUT)
        settle_outbox(w, outbox_flush(&w->outbox, w->sock_fd));
    if (!(events & ~(uint32_t)EPOLLOUT))
        return;
    for (int i = 0; i < 64; i++) {
        union sup_message m;
        AUTO_FOREIGN int fd = -1;
        size_t n_fds = 0;
        const unsigned cuts = foreign_cuts();
        foreign_begin();
        ssize_t n = fd_recv(w->sock_fd, &m, sizeof(m), &fd, 1, &n_fds);
        foreign_end();
        if (n == -EAGAIN)
            return;
        bool is_cut = n == -EMSGSIZE || n == -EPROTO;
        if (n_fds == 0)
            fd = -1;
        if (n <= 0 && !is_cut) {
            loop_remove(w->loop, &w->sock); /* its end comes through the pidfd */
            return;
        }
        if (is_cut || !w->spec.on_message || (size_t)n < sizeof(m.head) || (size_t)n != sup_size(m.head.type)) {
            log_error("%s sent a message of a wrong length; it is replaced", w->spec.name);
            kill_it(w, SIGKILL);
            return;
        }
        w->spec.on_message(w->spec.ctx, &m, TAKE_FD(fd));
        if (!closed_at_once(w, cuts))
            return;
    }
}

static void on_beat(struct source *s, uint32_t events UNUSED)
{
    struct worker *w = container_of(s, struct worker, beat);
    const unsigned cuts = foreign_cuts();
    bool goes_on = pulse_heard(&w->pulse);
    if (!closed_at_once(w, cuts) || !goes_on)
        loop_remove(w->loop, &w->beat);
}

/* One that nobody would hear of. */
static void unmake(struct worker *w)
{
    kill_it(w, SIGKILL);
    stop_asking(w);
    loop_remove(w->loop, &w->pidfd);
    loop_remove(w->loop, &w->sock);
    w->sock_fd = fd_close(w->sock_fd);
    w->pid_fd = fd_close(w->pid_fd);
    records_drop(w->spec.records, KEEPER_WORKER, w->spec.number);
}

/* is_whole: it was told all that a new one is told. */
struct worker_record {
    uint32_t version, is_whole;
    uint8_t settings[SHA1_BYTES];
};

static void write_down(struct worker *w, bool is_whole)
{
    struct worker_record record = {.version = w->spec.version, .is_whole = is_whole};
    memcpy(record.settings, w->spec.settings, sizeof(record.settings));
    const int fds[] = {w->sock_fd, w->pulse.fd};
    records_put(w->spec.records, KEEPER_WORKER, w->spec.number, w->pid, &record, sizeof(record), fds,
                is_whole ? 0 : ARRAY_SIZE(fds));
}

static int worker_watch(struct worker *w)
{
    int r = loop_add(w->loop, &w->pidfd, w->pid_fd, EPOLLIN, on_gone);
    r = r ? r : loop_add(w->loop, &w->beat, w->pulse.fd, EPOLLIN, on_beat);
    return r ? r : loop_add(w->loop, &w->sock, w->sock_fd, EPOLLIN, worker_on_sock);
}

static struct record *find_left(const struct worker *w)
{
    size_t it = 0;
    for (struct record *r; (r = records_next(w->spec.records, KEEPER_WORKER, &it));)
        if (r->number == w->spec.number && r->pid && r->n_fds == 2 && r->size == sizeof(struct worker_record))
            return r;
    return NULL;
}

/* A test whose file there is has the next one watched closely: it answers at all within seconds, or is hanging. */
static const struct pulse_patience *patience(void)
{
    static const struct pulse_patience little = {
        .every = USEC_PER_SEC / 5, .first = 600 * USEC_PER_SEC, .silent = 5 * USEC_PER_SEC};
    return fault_error("coved.worker.patience") < 0 ? &little : &pulse_usual;
}

static int worker_start(struct worker *w)
{
    static const int size = WORKER_BUFFER_BYTES;
    int pair[2], gate[2];
    AUTO_CLOSE int key_fd = -1, pem_fd = -1, pulse_fd = -1;
    int r = w->spec.key ? key_pipe(w->spec.key, &key_fd) : 0;
    if (r == 0 && w->spec.pem.p)
        r = pem_fd = child_input(w->spec.pem);
    if (r < 0)
        return r;
    if (pipe2(gate, O_CLOEXEC) < 0)
        return -errno;
    AUTO_CLOSE int gate_in = gate[1], gate_out = gate[0];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    w->sock_fd = pair[0];
    r = pulse_open(&w->pulse, patience(), clock_mono(), &pulse_fd);
    w->pid = r < 0 ? r : namespace_fork_sibling(&w->pid_fd);
    if (w->pid == 0) {
        char go;
        (void)close(gate_in);
        if (read(gate_out, &go, 1) != 1) /* coved died before it could write us down */
            _exit(127);
        worker_run(&w->spec, pair[1], pulse_fd, key_fd, pem_fd);
    }
    (void)fd_close(pair[1]);
    r = w->pid < 0 ? (int)w->pid : worker_watch(w);
    if (r < 0) {
        unmake(w);
        return r;
    }
    write_down(w, false);
    fault_point("coved.worker.recorded");
    int joined = w->spec.cgroups ? cgroup_attach(w->spec.cgroups, w->spec.group, w->pid) : 0;
    if (joined < 0)
        log_warn("%s has no control group of its own: %s", w->spec.name, strerror(-joined));
    w->started = clock_mono();
    ssize_t ignored UNUSED = write(gate_in, "", 1);
    w->spec.on_start(w->spec.ctx);
    write_down(w, true);
    return 0;
}

void worker_adopt(struct worker *w)
{
    struct record *left = w ? find_left(w) : NULL;
    if (!left)
        return;
    struct worker_record record;
    memcpy(&record, left->data, sizeof(record));
    left->is_taken = true;
    w->pid = left->pid;
    w->pid_fd = pidfd_open(left->pid, 0);
    w->sock_fd = TAKE_FD(left->fds[0]);
    w->pulse = (struct worker_pulse){.patience = *patience(), .due = clock_mono(), .has_answered = true};
    w->pulse.fd = TAKE_FD(left->fds[1]);
    w->started = clock_mono();
    w->start_at = 0;
    if (w->pid_fd < 0 || worker_watch(w) < 0) {
        unmake(w);
        w->start_at = clock_mono();
        return;
    }
    if (!record.is_whole || record.version != w->spec.version) {
        w->is_due = true;
        kill_it(w, SIGKILL);
        return;
    }
    bool is_same = memcmp(record.settings, w->spec.settings, sizeof(record.settings)) == 0;
    log_info(is_same ? "%s goes on" : "%s is replaced: it was started with other settings", w->spec.name);
    if (w->spec.on_adopt)
        w->spec.on_adopt(w->spec.ctx);
    if (!is_same)
        worker_replace(w, &w->spec);
}

void worker_send(struct worker *w, const void *message, size_t n, int fd)
{
    worker_send_fds(w, message, n, &fd, fd >= 0 ? 1 : 0);
}

void worker_send_fds(struct worker *w, const void *message, size_t n, const int *fds, size_t n_fds)
{
    if (w->sock_fd < 0)
        return;
    bool was_empty = outbox_is_empty(&w->outbox);
    int r = outbox_send(&w->outbox, w->sock_fd, message, n, fds, n_fds);
    if (r < 0 || was_empty != outbox_is_empty(&w->outbox))
        settle_outbox(w, r);
}

static void look_whether_it_hangs(struct worker *w, usec_t now)
{
    if (w->kill_at || w->pulse.fd < 0 || now < w->pulse.due ||
        pulse_turn(&w->pulse, now, w->spec.state ? w->spec.state(w->spec.ctx) : PULSE_FINE))
        return;
    log_error("%s has not answered for %llu s, in which coved itself ran on time: it hangs, and is replaced",
              w->spec.name, (unsigned long long)(w->pulse.silent / USEC_PER_SEC));
    stop_asking(w);
    w->kill_at = now + ABORT_MS * USEC_PER_MS;
    kill_it(w, SIGABRT);
}

size_t worker_backlog(const struct worker *w)
{
    return w->sock_fd < 0 ? SIZE_MAX : w->outbox.bytes;
}

usec_t worker_tick(struct worker *w)
{
    usec_t now = clock_mono();
    look_whether_it_hangs(w, now);
    if (w->kill_at && now >= w->kill_at) {
        w->kill_at = 0;
        kill_it(w, SIGKILL);
    }
    if (w->start_at && now >= w->start_at) {
        w->start_at = 0;
        int r = worker_start(w);
        if (r < 0) {
            log_error("start %s: %s", w->spec.name, strerror(-r));
            w->start_at = now + WORKER_DELAY_MOST_MS * USEC_PER_MS;
        }
    }
    usec_t next = w->start_at ? w->start_at : UINT64_MAX;
    next = w->kill_at ? MIN(next, w->kill_at) : next;
    return w->pulse.fd >= 0 && !w->kill_at ? MIN(next, w->pulse.due) : next;
}

bool worker_answers(const struct worker *w)
{
    return w->pulse.fd >= 0 && w->pulse.has_answered;
}

unsigned worker_stillborn(const struct worker *w)
{
    return w->stillborn;
}

bool worker_runs(const struct worker *w)
{
    return w->pid_fd >= 0;
}

bool worker_is_due(const struct worker *w)
{
    return w && w->is_due;
}

void worker_replace(struct worker *w, const struct worker_spec *spec)
{
    w->spec = *spec; /* which may be w->spec */
    if (w->stopping || w->pid_fd < 0)
        return;
    w->is_due = true;
    w->kill_at = clock_mono() + STOP_MS * USEC_PER_MS;
    kill_it(w, SIGTERM);
}

void worker_stop(struct worker *w)
{
    if (!w)
        return;
    w->stopping = true;
    w->start_at = 0;
    w->kill_at = clock_mono() + STOP_MS * USEC_PER_MS;
    kill_it(w, SIGTERM);
}

bool worker_is_gone(const struct worker *w)
{
    return !w || (w->pid_fd < 0 && !w->start_at);
}

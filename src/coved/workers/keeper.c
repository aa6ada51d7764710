/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/keeper.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "config/config.h"
#include "wire/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEEPER_YOUNG_USEC = 5 * 1000000, /* who dies younger is started again less quickly */
    KEEPER_DELAY_LEAST_MS = 100,
    KEEPER_DELAY_MOST_MS = 1000,
    ENDS_MAX = 3,     /* so many are started to end what runs in order */
    CHECK_MS = 10000, /* that another program has for saying that it would do */
    KEEPER_OPEN_FILES = 1 << 20,
    KEEPER_BUFFER_BYTES = 8 << 20,
};

struct keeper_record {
    struct keeper_message m;
    int fds[KEEPER_FDS_MAX]; /* owned */
    size_t n_fds;
};

struct keeper {
    const char *program;
    struct accepted *config;
    int ready_fd, signal_fd;
    int sock;    /* -1: no coved */
    pid_t coved; /* 0: none */
    bool is_up;  /* one has served */
    bool serves; /* this one does */
    bool is_told_to_end;
    unsigned n_ends;          /* that have died since */
    usec_t started, start_at; /* monotonic; start_at 0: not due */
    uint64_t delay_ms;
    struct map records; /* kind and number -> struct keeper_record */
    struct map by_pid;
};

/* ---- the configuration in force ---- */

static int accepted_copy(const struct accepted *a)
{
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_FILE_MAX);
    AUTO_FREE char *unfinished = mem_printf("%s.new", a->path);
    int r = fd_read_file(AT_FDCWD, a->from, &text);
    if (r < 0 && !(r == -ENOENT && a->may_be_missing))
        return r;
    r = fd_write_file(AT_FDCWD, unfinished, buf_str(&text), 0600);
    if (r == 0 && rename(unfinished, a->path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(unfinished);
    return r;
}

int accepted_open(const char *run_dir, struct accepted *ret_accepted, struct err *err)
{
    struct accepted a = {.path = mem_printf("%s/" KEEPER_CONFIG, run_dir),
                         .before = mem_printf("%s/" KEEPER_CONFIG_BEFORE, run_dir)};
    a.from = mem_strdup(config_path(&a.may_be_missing));
    (void)unlink(a.before);
    int r = accepted_copy(&a);
    if (r == 0 && setenv("COVE_CONFIG", a.path, 1) < 0)
        r = -errno;
    if (r < 0)
        return err_errno(err, r, "copy the configuration %s to %s", a.from, a.path);
    *ret_accepted = a;
    return 0;
}

/* In a child: back to what people write. */
static void accepted_say_from(const struct accepted *a)
{
    if ((a->may_be_missing ? unsetenv("COVE_CONFIG") : setenv("COVE_CONFIG", a->from, 1)) < 0)
        _exit(127);
}

/* The file as it is now; -errno: all is as it was. What is on trial already has no say in what comes back. */
static int accepted_take(struct accepted *a)
{
    bool is_first = access(a->before, F_OK) < 0;
    if (is_first && link(a->path, a->before) < 0)
        return -errno;
    int r = accepted_copy(a);
    if (r < 0 && is_first)
        (void)unlink(a->before);
    return r;
}

/* The new configuration stays. */
static void accepted_works(const struct accepted *a)
{
    (void)unlink(a->before);
}

/* It doesn't work; nothing happens where there is none from before. */
static void accepted_take_back(const struct accepted *a)
{
    if (rename(a->before, a->path) == 0)
        log_error("the previous configuration is in force again: coved can't run with the one in %s", a->from);
}

/* ---- records ---- */

static uint64_t key_of(const struct keeper_message *m)
{
    return (uint64_t)m->kind << 32 | m->number;
}

static void close_fds(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)fd_close(fds[i]);
}

/* 1: it has ended, and can still be waited for. 0: it lives. -1: it is no child. */
static int peek(idtype_t which, pid_t pid, siginfo_t *ret_info)
{
    memset(ret_info, 0, sizeof(*ret_info));
    if (waitid(which, (id_t)pid, ret_info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return -1;
    return ret_info->si_pid != 0;
}

/* Children of nobody: made by a coved that died, or had no use for them, before it recorded them. */
static void reap_unrecorded(struct keeper *k)
{
    siginfo_t info;
    while (peek(P_ALL, 0, &info) > 0 && info.si_pid != k->coved && !map_get_u64(&k->by_pid, (uint64_t)info.si_pid))
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
}

static void keeper_drop(struct keeper *k, uint64_t key)
{
    struct keeper_record *r = map_del_u64(&k->records, key);
    siginfo_t info;
    if (!r)
        return;
    if (r->m.pid)
        (void)map_del_u64(&k->by_pid, (uint64_t)r->m.pid);
    if (r->m.pid)
        (void)waitid(P_PID, (id_t)r->m.pid, &info, WEXITED | WNOHANG);
    close_fds(r->fds, r->n_fds);
    mem_free(r);
    reap_unrecorded(k);
}

static void keeper_put(struct keeper *k, const struct keeper_message *m, const int *fds, size_t n_fds)
{
    struct keeper_record *r = map_get_u64(&k->records, key_of(m));
    siginfo_t info;
    if (r && r->m.pid && r->m.pid != m->pid) {
        keeper_drop(k, key_of(m));
        r = NULL;
    }
    if (!r) {
        r = mem_new(struct keeper_record);
        (void)map_put_u64(&k->records, key_of(m), r);
    }
    r->m = *m;
    r->m.type = KEEPER_RECORD;
    if (r->m.pid && peek(P_PID, r->m.pid, &info) < 0)
        r->m.pid = 0;
    if (r->m.pid)
        (void)map_put_u64(&k->by_pid, (uint64_t)r->m.pid, r);
    if (n_fds == 0)
        return;
    close_fds(r->fds, r->n_fds);
    memcpy(r->fds, fds, n_fds * sizeof(*fds));
    r->n_fds = n_fds;
}

static int keeper_list(struct keeper *k)
{
    const struct keeper_message done = {.type = KEEPER_DONE, .number = KEEPER_VERSION};
    size_t it = 0;
    int r = 0;
    for (const struct keeper_record *one; r == 0 && (one = map_next(&k->records, &it));)
        r = fd_send(k->sock, &one->m, sizeof(one->m), one->fds, one->n_fds);
    return r ? r : fd_send(k->sock, &done, sizeof(done), NULL, 0);
}

static int tell_exit(struct keeper *k, pid_t pid)
{
    struct keeper_message m = {.type = KEEPER_DONE, .pid = pid};
    siginfo_t info;
    if (map_get_u64(&k->by_pid, (uint64_t)pid) && peek(P_PID, pid, &info) > 0) {
        m.found = 1;
        m.code = info.si_code;
        m.status = info.si_status;
    }
    return fd_send(k->sock, &m, sizeof(m), NULL, 0);
}

/* As sd_notify(3) does. */
static void keeper_notify(const char *state)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t n = path ? strlen(path) : 0;
    if (!n || n > sizeof(to.sun_path))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@')
        to.sun_path[0] = 0;
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        log_warn("tell %s that the service is ready: %s", path, strerror(errno));
}

static void keeper_say_ready(struct keeper *k)
{
    if (!k->is_up)
        keeper_notify("READY=1");
    if (k->ready_fd >= 0 && fd_write_all(k->ready_fd, "ready\n", 6) < 0)
        log_warn("whoever waited for us to be ready is gone");
    k->ready_fd = fd_close(k->ready_fd);
    if (k->is_up)
        log_info("coved serves again, %llu ms after its start", (unsigned long long)(clock_mono() - k->started) / 1000);
    accepted_works(k->config);
    k->is_up = k->serves = true;
}

/* False: there is no message. */
static bool take_message(struct keeper *k)
{
    struct keeper_message m;
    int fds[KEEPER_FDS_MAX], r = 0;
    size_t n_fds = 0;
    struct pollfd p = {.fd = k->sock, .events = POLLIN};
    if (k->sock < 0 || poll(&p, 1, 0) <= 0)
        return false;
    ssize_t n = fd_recv(k->sock, &m, sizeof(m), fds, KEEPER_FDS_MAX, &n_fds);
    if (n != (ssize_t)sizeof(m) || m.size > sizeof(m.data)) {
        if (n > 0)
            close_fds(fds, n_fds);
        k->sock = fd_close(k->sock); /* its end comes as a signal */
        return false;
    }
    switch ((enum keeper_type)m.type) {
    case KEEPER_PUT:
        keeper_put(k, &m, fds, n_fds);
        return true;
    case KEEPER_DROP:
        keeper_drop(k, key_of(&m));
        break;
    case KEEPER_LIST:
        r = keeper_list(k);
        break;
    case KEEPER_EXIT:
        r = tell_exit(k, m.pid);
        break;
    case KEEPER_READY:
        keeper_say_ready(k);
        break;
    case KEEPER_RECORD:
    case KEEPER_DONE:
        break;
    }
    close_fds(fds, n_fds);
    if (r < 0)
        log_error("answer coved: %s", strerror(-r));
    return true;
}

/* ---- coved ---- */

NORETURN static void become_coved(const struct keeper *k, int sock)
{
    AUTO_FREE char *number = mem_printf("%d", sock);
    char *const *argv = CHILD_ARGV("coved", "run", "--keeper-fd", number);
    /* Signals stay blocked: what comes before it watches them waits for it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && fd_cloexec(sock, false) == 0)
        (void)execv(k->program, argv);
    log_error("start %s: %s", k->program, strerror(errno));
    _exit(127);
}

static int keeper_start(struct keeper *k, struct err *err)
{
    static const int size = KEEPER_BUFFER_BYTES;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "make a socket pair");
    (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    pid_t pid = fork();
    if (pid == 0)
        become_coved(k, pair[1]);
    (void)fd_close(pair[1]);
    if (pid < 0) {
        (void)fd_close(pair[0]);
        return err_errno(err, errno, "start coved");
    }
    k->sock = pair[0];
    k->coved = pid;
    k->started = clock_mono();
    k->start_at = 0;
    k->serves = false;
    if (k->is_told_to_end)
        (void)kill(pid, SIGTERM);
    return 0;
}

/* Whether the program and the configuration that lie there now would do in the place of those that run. Waits for
 * it. */
static bool would_fit(const struct keeper *k)
{
    AUTO_FREE char *number = mem_printf("%d", KEEPER_VERSION);
    char *const *argv = CHILD_ARGV("coved", "run", "--fits", number);
    usec_t end = clock_mono() + CHECK_MS * USEC_PER_MS;
    siginfo_t info = {0};
    pid_t pid = fork();
    if (pid == 0) {
        accepted_say_from(k->config);
        (void)execv(k->program, argv);
        _exit(127);
    }
    for (bool is_late = false; pid > 0 && info.si_pid == 0;) {
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | (is_late ? 0 : WNOHANG)) < 0)
            return false;
        is_late = clock_mono() > end;
        if (is_late)
            (void)kill(pid, SIGKILL);
        else if (info.si_pid == 0)
            (void)usleep(1000);
    }
    return pid > 0 && info.si_code == CLD_EXITED && info.si_status == 0;
}

/* Its exit status, once the service has ended; -1 before. */
static int coved_ended(struct keeper *k, const siginfo_t *info)
{
    bool is_clean = info->si_code == CLD_EXITED && info->si_status == 0;
    bool makes_way = info->si_code == CLD_EXITED && info->si_status == KEEPER_EXIT_AGAIN;
    while (take_message(k))
        ;
    k->sock = fd_close(k->sock);
    k->coved = 0;
    fault_point("keeper.lost");
    if (is_clean)
        return 0;
    if (!k->serves)
        accepted_take_back(k->config);
    if (!k->is_up || (k->is_told_to_end && ++k->n_ends > ENDS_MAX))
        return info->si_code == CLD_EXITED ? info->si_status : 1;
    bool is_young = !makes_way && !k->is_told_to_end && (!k->serves || clock_mono() - k->started < KEEPER_YOUNG_USEC);
    k->delay_ms = !is_young     ? 0
                  : k->delay_ms ? MIN(k->delay_ms * 2, (uint64_t)KEEPER_DELAY_MOST_MS)
                                : KEEPER_DELAY_LEAST_MS;
    k->start_at = clock_mono() + k->delay_ms * USEC_PER_MS;
    if (!makes_way)
        log_error("coved ended (%s %d); %zu sandboxes and workers keep running, and a new coved starts in %llu ms",
                  info->si_code == CLD_EXITED ? "exit code" : "signal", info->si_status, map_count(&k->by_pid),
                  (unsigned long long)k->delay_ms);
    return -1;
}

static void keeper_reload(struct keeper *k)
{
    if (!k->is_up || k->is_told_to_end)
        return;
    if (!would_fit(k)) {
        log_error("nothing was reloaded: %s can't take over, or %s is invalid", k->program, k->config->from);
        return;
    }
    int r = accepted_take(k->config);
    if (r < 0)
        log_error("the configuration stays as it is: read %s: %s", k->config->from, strerror(-r));
    if (k->coved)
        (void)kill(k->coved, SIGUSR2);
}

static void pass_on(struct keeper *k, int signal)
{
    if (signal != SIGUSR1) {
        k->is_told_to_end = true;
        k->start_at = k->coved ? 0 : clock_mono(); /* who ends things in order */
    }
    if (k->coved)
        (void)kill(k->coved, k->is_up ? signal : SIGKILL);
}

static int on_signals(struct keeper *k)
{
    struct signalfd_siginfo s;
    siginfo_t info;
    int status = -1;
    bool has_child_ended = false;
    while (read(k->signal_fd, &s, sizeof(s)) == (ssize_t)sizeof(s))
        if (s.ssi_signo == SIGUSR2 || (s.ssi_signo == SIGHUP && s.ssi_code != SI_KERNEL))
            keeper_reload(k);
        else if (s.ssi_signo == SIGCHLD)
            has_child_ended = true;
        else
            pass_on(k, s.ssi_signo == SIGHUP ? SIGTERM : (int)s.ssi_signo); /* its terminal is gone */
    if (!has_child_ended)
        return status;
    if (k->coved && peek(P_PID, k->coved, &info) > 0) {
        (void)waitid(P_PID, (id_t)k->coved, &info, WEXITED | WNOHANG);
        status = coved_ended(k, &info);
    }
    reap_unrecorded(k);
    return status;
}

static int keeper_watch_signals(struct keeper *k, struct err *err)
{
    static const int watched[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(watched); i++)
        (void)sigaddset(&set, watched[i]);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || (k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return err_errno(err, errno, "watch signals");
    return 0;
}

int keeper_run(const char *program, struct accepted *config, int ready_fd, struct err *err)
{
    const struct rlimit files = {KEEPER_OPEN_FILES, KEEPER_OPEN_FILES};
    struct keeper k = {.program = program, .config = config, .ready_fd = ready_fd, .signal_fd = -1, .sock = -1};
    int status = -1;
    (void)prctl(PR_SET_NAME, "cove-keeper", 0, 0, 0);
    (void)setrlimit(RLIMIT_NOFILE, &files); /* coved says it when that is not enough */
    int ignored UNUSED = fd_write_existing(AT_FDCWD, "/proc/self/oom_score_adj", STR("-1000"));
    if (keeper_watch_signals(&k, err) < 0 || keeper_start(&k, err) < 0)
        return -1;
    while (status < 0) {
        struct pollfd p[] = {{.fd = k.signal_fd, .events = POLLIN}, {.fd = k.sock, .events = POLLIN}};
        usec_t now = clock_mono();
        int wait_ms = !k.start_at ? -1 : k.start_at <= now ? 0 : (int)((k.start_at - now) / USEC_PER_MS + 1);
        (void)poll(p, ARRAY_SIZE(p), wait_ms);
        while (take_message(&k))
            ;
        status = on_signals(&k);
        if (status < 0 && k.start_at && clock_mono() >= k.start_at && keeper_start(&k, err) < 0) {
            log_error("%s", err->msg);
            k.start_at = clock_mono() + KEEPER_DELAY_MOST_MS * USEC_PER_MS;
            status = k.is_told_to_end && ++k.n_ends > ENDS_MAX ? 1 : -1;
        }
    }
    return status; /* with this process all that there may still be ends */
}

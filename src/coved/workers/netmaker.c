/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/netmaker.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernel/caps.h"
#include "kernel/mount.h"
#include "kernel/seccomp.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SOCK_FD = 3,
    PROCFS_USES = 32,
    STOCK_MAX = 64,
    NETMAKER_NET_FDS = 4,
    FAILURES_MAX = 3, /* in a row; then who waits is told instead */
    FIRST_MS = 10000,
    ANSWER_USEC = 10 * 1000000,
    NETMAKER_AGAIN_USEC = 200 * 1000,
    REAP_MS =
        50, /* that coved's one thread waits for a child it killed: the kernel may be at work for it for much longer */
};

struct netmaker {
    struct coved_loop *loop;
    struct source source;
    int sock_fd; /* owned; -1: no child */
    pid_t pid;
    pid_t dying; /* killed, and not ended yet; 0: none */
    uid_t uid;
    enum netns_kind kind;
    struct netns stock[STOCK_MAX];
    size_t n, wanted, asked;
    int failure;     /* of the last attempt: 0 or -errno */
    size_t failures; /* in a row */
    usec_t asked_at; /* the last time that something was asked for or answered */
    usec_t start_at; /* monotonic: a new child, or another attempt, not before */
};

/* ---- the child ---- */

static int confine(uid_t uid)
{
    child_unblock();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_NAME, "cove-netmaker", 0, 0, 0);
    if (unshare(CLONE_NEWNET) < 0 || setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0)
        return -errno;
    int r = caps_keep_only(1ULL << CAP_SYS_ADMIN | 1ULL << CAP_NET_ADMIN, uid);
    if (r < 0)
        return r;
    /* Behind the change of user, which would clear it. When coved has died before this line, the socket says so. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    return seccomp_load(SECCOMP_NETMAKER);
}

static int netmaker_answer(int code, const struct netns *net)
{
    const int32_t message = code;
    const int fds[NETMAKER_NET_FDS] = {net->ns, net->tcp, net->dns_udp, net->dns_tcp};
    return fd_send(SOCK_FD, &message, sizeof(message), fds, code == 0 ? NETMAKER_NET_FDS : 0);
}

/* See netns_make_by(); -1, where that may not be mounted: the host's is used. */
static void netmaker_renew(int *procfs)
{
    *procfs = fd_close(*procfs);
    int ignored UNUSED = mount_new("proc", NULL, 0, procfs);
}

NORETURN static void netmaker_run(int sock, uid_t uid, enum netns_kind kind)
{
    char order;
    if (dup2(sock, SOCK_FD) < 0 || close_range(SOCK_FD + 1, ~0U, 0) < 0)
        _exit(1);
    int unfit = confine(uid);
    AUTO_CLOSE int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), procfs = -1;
    if (unfit == 0 && home < 0)
        unfit = -errno;
    for (unsigned n = 0; recv(SOCK_FD, &order, sizeof(order), 0) == sizeof(order); n++) {
        struct netns net = NETNS_NONE;
        if (n % PROCFS_USES == 0)
            netmaker_renew(&procfs);
        int r = unfit                ? unfit
                : kind == NETNS_GATE ? netns_make_gate(procfs, &net)
                : kind == NETNS_TAP  ? netns_make_gate_for_tap(procfs, &net)
                : procfs < 0         ? netns_make(&net)
                                     : netns_make_by(procfs, &net);
        /* Back, so that a namespace ends with the sandbox that it was made for. */
        if (!unfit && setns(home, CLONE_NEWNET) < 0)
            r = unfit = -errno;
        r = netmaker_answer(r, &net);
        netns_close(&net);
        if (r < 0)
            break;
    }
    _exit(0);
}

/* ---- coved's side ---- */

static void netmaker_failed(struct netmaker *m, int r)
{
    m->failure = r;
    m->failures++;
    m->start_at = clock_mono() + NETMAKER_AGAIN_USEC;
}

static void reap(struct netmaker *m)
{
    if (m->dying && waitpid(m->dying, NULL, WNOHANG) != 0)
        m->dying = 0;
}

static void drop_child(struct netmaker *m)
{
    loop_remove(m->loop, &m->source);
    m->sock_fd = fd_close(m->sock_fd);
    if (m->pid > 0) {
        AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, m->pid, 0);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        (void)kill(m->pid, SIGKILL);
        (void)poll(&p, 1, REAP_MS);
        m->dying = m->pid;
        reap(m);
    }
    m->pid = 0;
    m->asked = 0;
}

static int take_answer(struct netmaker *m)
{
    int32_t code = 0;
    int fds[NETMAKER_NET_FDS];
    size_t n_fds = 0;
    ssize_t n = fd_recv(m->sock_fd, &code, sizeof(code), fds, NETMAKER_NET_FDS, &n_fds);
    if (n == -EAGAIN)
        return -EAGAIN;
    bool whole = n == sizeof(code) && m->asked && n_fds == (code == 0 ? NETMAKER_NET_FDS : 0) && code <= 0;
    if (!whole) {
        for (size_t i = 0; n > 0 && i < n_fds; i++)
            (void)fd_close(fds[i]);
        return n < 0 ? (int)n : -EPIPE;
    }
    m->asked--;
    m->asked_at = clock_mono();
    if (code < 0) {
        netmaker_failed(m, code);
        return 0;
    }
    m->failure = 0;
    m->failures = 0;
    m->stock[m->n++] = (struct netns){fds[0], fd_lasting(fds[1]), fd_lasting(fds[2]), fd_lasting(fds[3])};
    return 0;
}

static void netmaker_replace(struct netmaker *m, const char *why)
{
    log_error("the maker of network namespaces %s; there will be a new one", why);
    drop_child(m);
    netmaker_failed(m, -EPIPE);
}

static void netmaker_on_sock(struct source *s, uint32_t events UNUSED)
{
    struct netmaker *m = container_of(s, struct netmaker, source);
    int r = 0;
    while (r == 0)
        r = take_answer(m);
    if (r != -EAGAIN)
        netmaker_replace(m, "has ended");
}

static int netmaker_spawn(struct netmaker *m)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    int r = fd_nonblock(pair[1], false);
    pid_t pid = r < 0 ? -1 : fork();
    if (pid == 0)
        netmaker_run(pair[1], m->uid, m->kind);
    if (r == 0 && pid < 0)
        r = -errno;
    (void)fd_close(pair[1]);
    m->sock_fd = pair[0];
    m->pid = pid;
    r = r ? r : loop_add(m->loop, &m->source, m->sock_fd, EPOLLIN, netmaker_on_sock);
    if (r < 0)
        drop_child(m);
    return r;
}

static void netmaker_ask(struct netmaker *m)
{
    while (m->sock_fd >= 0 && m->n + m->asked < m->wanted) {
        if (send(m->sock_fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
            return; /* its end comes through the socket */
        m->asked++;
        m->asked_at = clock_mono();
    }
}

int netmaker_start(struct coved_loop *loop, uid_t uid, enum netns_kind kind, size_t stock, struct netmaker **ret_maker,
                   struct err *err)
{
    struct netmaker *m = mem_new(struct netmaker);
    m->loop = loop;
    m->source.fd = m->sock_fd = -1;
    m->uid = uid;
    m->kind = kind;
    m->wanted = MIN(stock, (size_t)STOCK_MAX);
    int r = netmaker_spawn(m);
    if (r == 0) {
        netmaker_ask(m);
        struct pollfd p = {.fd = m->sock_fd, .events = POLLIN};
        r = poll(&p, 1, FIRST_MS) == 1 ? take_answer(m) : -ETIMEDOUT;
        r = r ? r : m->failure;
    }
    if (r < 0) {
        netmaker_stop(m);
        return err_errno(err, r, "make a network namespace that captures connections");
    }
    *ret_maker = m;
    return 0;
}

void netmaker_stop(struct netmaker *m)
{
    drop_child(m);
    while (m->n)
        netns_close(&m->stock[--m->n]);
    mem_free(m);
}

int netmaker_take(struct netmaker *m, struct netns *ret_net)
{
    if (m->n == 0)
        return m->failures < FAILURES_MAX ? -EAGAIN : m->failure;
    *ret_net = m->stock[--m->n];
    return 0;
}

usec_t netmaker_tick(struct netmaker *m)
{
    usec_t now = clock_mono();
    if (m->asked && now - m->asked_at > ANSWER_USEC)
        netmaker_replace(m, "says nothing");
    reap(m);
    if (m->dying)
        m->start_at = MAX(m->start_at, now + NETMAKER_AGAIN_USEC); /* one at a time */
    bool missing = m->n + m->asked < m->wanted;
    if (missing && now >= m->start_at) {
        int r = m->sock_fd < 0 ? netmaker_spawn(m) : 0;
        if (r < 0)
            netmaker_failed(m, r);
        netmaker_ask(m);
    }
    if (m->asked)
        return m->asked_at + ANSWER_USEC + 1;
    return missing ? m->start_at : UINT64_MAX;
}

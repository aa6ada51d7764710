/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/dns/dns_server.h"
#include "egress/dns/names.h"
#include "egress/flow/side_tcp.h"
#include "egress/internal.h"
#include "egress/tls/ca.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>

/* Clients keep addresses for longer than they were told; for so long a name and its address belong together here. */
enum { NAME_KEPT_S = 3600, ACCEPTS_PER_TURN = 32, OWN_USEC = 5 * 1000000 };

/* A flow has two descriptors, and as many of one that has ended may not be closed yet. */
enum { FLOWS_MAX = 65536, FLOW_FDS = 4 };

/* TLS both ways and the reading of HTTP take 40 to 90 KiB for an intercepted connection. All of them may take half of
 * what coved lets this process have (coved/workers/network.c). */
enum { INTERCEPTED_BYTES = 128 << 10, MEMORY_PART = 4, MEMORY_LEAST = 512 << 20 };

/* ---- this machine's own addresses ---- */

static void read_own(struct egress *e)
{
    struct netaddr *own;
    size_t n;
    e->own_at = clock_mono();
    if (netaddr_own(&own, &n) < 0)
        return; /* those of before */
    mem_free(e->own);
    e->own = own;
    e->n_own = n;
}

bool egress_is_own(struct egress *e, const struct netaddr *a)
{
    if (!e->own_at || clock_mono() - e->own_at > OWN_USEC)
        read_own(e);
    for (size_t i = 0; i < e->n_own; i++)
        if (netaddr_eq(&e->own[i], a))
            return true;
    return false;
}

/* ---- one sandbox's network ---- */

struct net *net_ref(struct net *n)
{
    n->refs++;
    return n;
}

void net_unref(struct net *n)
{
    assert(n->refs);
    if (--n->refs)
        return;
    assert(list_empty(&n->flows));
    policy_unref(n->policy);
    names_free(n->names);
    ca_free(n->ca);
    list_remove(&n->denying);
    list_remove(&n->turn);
    mem_free(n);
}

struct net *net_get(struct egress *e, const char *id, bool make)
{
    struct net *n = map_get(&e->nets, str_of(id));
    if (n || !make || e->closing)
        return n;
    if (map_count(&e->nets) >= NETS_MAX) {
        log_error("more than %d networks: %s gets none", NETS_MAX, id);
        return NULL;
    }
    n = mem_new(struct net);
    n->egress = e;
    n->refs = 1;
    n->tcp_fd = -1;
    (void)snprintf(n->id, sizeof(n->id), "%s", id);
    memcpy(n->sealed_for, n->id, sizeof(n->id));
    n->names = names_new();
    list_init(&n->flows);
    list_init(&n->turn);
    list_init(&n->turns);
    list_init(&n->denying);
    (void)map_put(&e->nets, str_of(id), n);
    return n;
}

/* ---- its sockets ---- */

static void on_tcp_closed(uv_handle_t *handle)
{
    struct net *n = container_of((uv_poll_t *)handle, struct net, tcp);
    n->tcp_fd = fd_close(n->tcp_fd);
    net_unref(n);
}

static unsigned flows_max(struct egress *e)
{
    struct rlimit files;
    if (!e->flows_max && getrlimit(RLIMIT_NOFILE, &files) == 0)
        e->flows_max = (unsigned)MIN(files.rlim_cur / FLOW_FDS, (rlim_t)FLOWS_MAX);
    return e->flows_max;
}

/* Half of what is left for all: however many sandboxes take all that they can get, there is some for the next one. */
unsigned net_flows_max(const struct net *n)
{
    struct egress *e = n->egress;
    unsigned most = flows_max(e);
    return most > e->n_flows ? MIN((most - e->n_flows) / 2, (unsigned)NET_FLOWS_MAX) : 0;
}

static unsigned intercepted_max(struct egress *e)
{
    struct sysinfo machine;
    if (!e->intercepted_max && sysinfo(&machine) == 0) {
        uint64_t memory = MAX((uint64_t)machine.totalram * machine.mem_unit / MEMORY_PART, (uint64_t)MEMORY_LEAST);
        e->intercepted_max = (unsigned)MIN(memory / 2 / INTERCEPTED_BYTES, (uint64_t)FLOWS_MAX);
    }
    return e->intercepted_max;
}

unsigned net_intercepted_max(const struct net *n)
{
    struct egress *e = n->egress;
    unsigned most = intercepted_max(e);
    return most > e->n_intercepted ? (most - e->n_intercepted) / 2 : 0;
}

static void on_connection(uv_poll_t *handle, int status, int events UNUSED)
{
    struct net *n = container_of(handle, struct net, tcp);
    if (status < 0)
        return;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
        int fd = accept4(n->tcp_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            n->deaf = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
            if (n->deaf) /* out of descriptors or memory: the loop would call again at once, for as long as that lasts */
                (void)uv_poll_stop(&n->tcp);
            return;
        }
        flow_accept(n, fd);
    }
}

void net_listen_again(struct net *n)
{
    if (!n->deaf)
        return;
    n->deaf = false;
    (void)uv_poll_start(&n->tcp, UV_READABLE, on_connection);
}

static void close_sockets(struct net *n)
{
    if (n->dns)
        dns_server_free(TAKE_PTR(n->dns));
    if (n->tcp_fd < 0 || uv_is_closing((uv_handle_t *)&n->tcp))
        return;
    (void)uv_poll_stop(&n->tcp);
    uv_close((uv_handle_t *)&n->tcp, on_tcp_closed);
}

static bool may_resolve(void *ctx, const char *name, struct policy_answer *ret_answer)
{
    struct net *n = ctx;
    if (n->policy) {
        policy_judge_name(n->policy, name, ret_answer);
        return ret_answer->verdict != POLICY_DENY;
    }
    *ret_answer =
        (struct policy_answer){.verdict = POLICY_DENY, .rule = POLICY_RULE_BUILTIN, .reason = "no policy is set"};
    return false;
}

/* The sandbox may then connect to these addresses under this name, so it is told only those that it could be allowed to
 * reach. */
static size_t net_on_resolved(void *ctx, const char *name, struct netaddr *addrs, size_t n_addrs, unsigned ttl_s)
{
    struct net *n = ctx;
    size_t kept = 0;
    for (size_t i = 0; i < n_addrs; i++) {
        struct policy_query q = {.name = name, .addr = addrs[i], .is_host = egress_is_own(n->egress, &addrs[i])};
        struct policy_answer why;
        if (!n->policy)
            continue;
        policy_judge(n->policy, &q, &why);
        if (why.verdict == POLICY_DENY) {
            report_denied(n, &(struct report_target){.proto = "dns", .name = name, .addr = &addrs[i]}, &why);
            continue;
        }
        names_add(n->names, &addrs[i], name, MAX(ttl_s, (unsigned)NAME_KEPT_S));
        addrs[kept++] = addrs[i];
    }
    return kept;
}

static void net_on_refused(void *ctx, const char *name, const char *type UNUSED, const struct policy_answer *why)
{
    report_denied(ctx, &(struct report_target){.proto = "dns", .name = name}, why);
}

static void net_on_failed(void *ctx, const char *name, const char *why)
{
    report_unresolved(ctx, name, why);
}

void net_open(struct net *n, const int fds[static 3])
{
    static const struct dns_server_ops ops = {may_resolve, net_on_resolved, net_on_refused, net_on_failed};
    struct egress *e = n->egress;
    int copy[3] = {fds[0], fds[1], fds[2]};
    if (n->tcp_fd >= 0) { /* told again */
        for (int i = 0; i < 3; i++)
            (void)fd_close(copy[i]);
        return;
    }
    n->tcp_fd = copy[0];
    side_tcp_listener(n->tcp_fd);
    int r = fd_nonblock(n->tcp_fd, true);
    r = r < 0 ? r : uv_poll_init(e->loop, &n->tcp, n->tcp_fd);
    if (r < 0) {
        log_error("watch the network of %s: %s", n->id, strerror(-r));
        n->tcp_fd = -1;
        for (int i = 0; i < 3; i++)
            (void)fd_close(copy[i]);
        return;
    }
    (void)net_ref(n);
    (void)uv_poll_start(&n->tcp, UV_READABLE, on_connection);
    r = dns_server_new(e->loop, e->resolver, copy[1], copy[2], &ops, n, &n->dns);
    if (r < 0)
        log_error("serve DNS to %s: %s", n->id, strerror(-r));
}

void net_drop(struct net *n)
{
    n->gone = true;
    (void)map_del(&n->egress->nets, str_of(n->id));
    flows_cut_all(n, "the sandbox has ended");
    report_forget(n);
    close_sockets(n);
    net_unref(n);
}

void net_set_policy(struct net *n, struct policy *p)
{
    policy_unref(n->policy);
    n->policy = p;
    flows_judge_again(n);
}

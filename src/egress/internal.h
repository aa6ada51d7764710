/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the egress share. Who owns what:
 *
 *   egress   one; the link to cove-api, the resolver, the networks by sandbox id
 *   net      one per sandbox: its listening sockets, policy, names seen in DNS, CA, flows. Exists from EGRESS_NET or from its first policy
 *            on, whichever comes first; without a policy it refuses everything
 *   flow     one captured connection (flow.c): sniffed, judged, dialled, then bytes (relay), or requests (exchange)
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"
#include "egress/egress.h"
#include "egress/http/exchange.h"
#include "policy/policy.h"

enum { NET_FLOWS_MAX = 4096, NET_DENIALS_MAX = 64, NETS_MAX = 8192 };

struct ca;
struct dns_server;
struct link;
struct names;
struct resolver;
struct relay_pool;
struct tls_context;
struct control;

struct egress {
    uv_loop_t *loop;
    struct egress_config config;
    struct link *link;
    struct resolver *resolver;
    struct tls_context *world;     /* TLS towards upstreams */
    struct tls_context *sandboxes; /* and towards clients, where it is intercepted */
    struct relay_pool *pipes;
    struct map nets; /* sandbox id -> struct net */
    struct control *control;
    struct list denying; /* nets with denials to tell */
    struct list checks;  /* requests.c: those that wait for the resolver */
    struct list posts;   /* post.c */
    size_t n_posts;
    struct list asks; /* ask.c */
    unsigned n_asks;
    uv_timer_t denial_timer;
    unsigned n_flows;         /* of all nets */
    unsigned flows_max;       /* 0: not computed yet */
    unsigned n_intercepted;   /* flows whose TLS is intercepted */
    unsigned intercepted_max; /* 0: not computed yet */
    struct list turns;        /* nets with flows that wait to begin TLS */
    uv_idle_t turn;           /* active while there are any */
    size_t crowd;             /* of flows, for mem_trim_after() */
    uv_timer_t soon_timer;    /* link.c: until events that may wait are sent */
    struct netaddr *own;      /* this machine's addresses */
    size_t n_own;
    usec_t own_at;
    unsigned handles; /* uv handles in our memory or in that of flows that are not closed yet */
    bool closing;
};

/* A kind of denial that was told lately: alike ones are counted and told together. */
struct denial {
    uint64_t key;
    usec_t told_at; /* monotonic */
    unsigned count; /* not told yet */
    json_t *last;   /* the latest of them, owned; NULL: none */
};

struct net {
    struct egress *egress;
    char id[ID_SANDBOX_LEN + 1];
    unsigned refs;
    /* Whose sealed values its policy has: its own, or those of the sandbox that it was forked from. */
    char sealed_for[ID_SANDBOX_LEN + 1];
    bool gone; /* dropped; lives on only for references */
    int tcp_fd;
    uv_poll_t tcp; /* while tcp_fd >= 0 */
    bool deaf;     /* it is not polled: there was no descriptor for a connection */
    struct dns_server *dns;
    struct policy *policy; /* NULL: refuse everything */
    struct names *names;
    struct ca *ca;
    struct list flows;
    struct list turn, turns;     /* of the egress; and flows that wait for it */
    unsigned n_flows, n_lookups; /* lookups: of flows */
    unsigned n_intercepted;      /* of flows */
    struct exchange_share share; /* of its exchanges */
    uint64_t last_flow;
    struct denial denials[NET_DENIALS_MAX];
    struct list denying;
};

/* net.c */
struct net *net_get(struct egress *e, const char *id, bool make); /* NULL: unknown, or too many */
struct net *net_ref(struct net *n);
void net_unref(struct net *n);
void net_open(struct net *n, const int fds[static 3]); /* takes the descriptors of EGRESS_NET */
void net_drop(struct net *n);
void net_listen_again(struct net *n);                 /* now and then: what could not be accepted is tried once more */
unsigned net_flows_max(const struct net *n);          /* how many connections it may have at the moment */
unsigned net_intercepted_max(const struct net *n);    /* and how many of them intercepted */
void net_set_policy(struct net *n, struct policy *p); /* takes the reference; cuts flows that it no longer allows */
bool egress_is_own(struct egress *e, const struct netaddr *a);

/* flow.c */
void flow_accept(struct net *n, int fd); /* takes fd, an accepted connection of the sandbox */
void flows_judge_again(struct net *n);   /* after a change of policy: cuts what is not allowed any more */
void flows_cut_all(struct net *n, const char *why);

/* report.c: what cove-api is told. proto: "dns", "tls", "http", "tcp" */
struct report_target {
    const char *proto;
    const char *name; /* NULL: none */
    const struct netaddr *addr;
    uint16_t port;
    struct str method, path;
};
void report_denied(struct net *n, const struct report_target *t, const struct policy_answer *why);
void report_unresolved(struct net *n, const char *name, const char *why);
void report_misuse(struct net *n, const char *secret, const char *name, uint16_t port);
void report_start(struct egress *e);
void report_stop(struct egress *e);
void report_forget(struct net *n);

/* link.c: the socket to cove-api */
struct link *link_new(struct egress *e);
void link_free(struct link *l);
void link_attach(struct link *l, int fd);           /* takes fd */
void link_tell(struct link *l, json_t *event);      /* steals it; dropped and counted when cove-api does not read */
void link_tell_soon(struct link *l, json_t *event); /* the same, with the next one or in a few milliseconds, in order */

/* control.c: orders of coved */
int control_start(struct egress *e, struct err *err) WARN_UNUSED;
void control_stop(struct egress *e);

/* A handle that counted in egress.handles was closed. */
void egress_handle_gone(struct egress *e);

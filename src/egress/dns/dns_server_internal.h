/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of dns_server share: the sockets and their readers are in dns_server.c (UDP) and dns_tcp.c, what
 * becomes of a query in dns_judge.c, how many there may be in dns_limit.h.
 */
#pragma once

#include "base/list.h"
#include "egress/dns/dns_limit.h"
#include "egress/dns/dns_server.h"
#include "egress/dns/dnsmsg.h"

#include <netinet/in.h>

enum { DNS_QUESTION_MAX = 255 + 4 };

/* Where a query came from, and its answer goes. */
struct dns_origin {
    struct dns_conn *conn; /* NULL: UDP */
    struct sockaddr_storage client;
    socklen_t client_len;
    bool has_asked4, has_asked6; /* what was asked, from which the answer must come */
    struct in_addr asked4;
    struct in6_pktinfo asked6;
};

/* A query whose name is being resolved. */
struct dns_ask {
    struct dns_server *s;
    struct list node;    /* in s->asks */
    struct list of_conn; /* in origin.conn->asks */
    struct resolver_lookup *lookup;
    struct dns_origin origin;
    char name[HOSTNAME_MAX + 1];
    char question[DNS_QUESTION_MAX];
    struct dns_query q; /* its question is in `question` */
};

struct dns_server {
    uv_loop_t *loop;
    struct resolver *resolver;
    const struct dns_server_ops *ops;
    void *ctx;
    usec_t (*now)(void);
    int udp_fd, tcp_fd; /* owned */
    uv_poll_t udp, tcp;
    uv_timer_t timer;
    unsigned handles;
    bool paused; /* the read rate is used up: nothing is read or accepted */
    struct list asks, conns;
    unsigned n_asks, n_conns;
    struct dns_bucket rate, read_rate;
    struct dns_names names;
    bool told_rate, told_open;
};

/* dns_judge.c */
void dns_judge(struct dns_server *s, struct str message, const struct dns_origin *from);
void dns_ask_free(struct dns_ask *a); /* without an answer */

/* dns_server.c */
void dns_server_was_read(struct dns_server *s); /* one message or connection: may pause */
void dns_server_send(struct dns_server *s, const struct dns_origin *to, const void *message, size_t n); /* UDP */
void dns_server_set_timer(struct dns_server *s);                      /* after n_conns or paused changed */
void dns_server_set_clock(struct dns_server *s, usec_t (*now)(void)); /* for tests: instead of clock_mono() */

/* dns_tcp.c */
void dns_tcp_accept(struct dns_server *s);
void dns_tcp_pause(struct dns_server *s); /* judges, closes and calls nobody */
void dns_tcp_resume(struct dns_server *s);
void dns_tcp_expire(struct dns_server *s);
void dns_tcp_end(struct dns_server *s);
void dns_conn_send(struct dns_conn *c, const void *message, size_t n);

/* After anything was done: judges what was held back, sends what can be sent, then waits for what is needed next. */
void dns_conn_settle(struct dns_conn *c);
struct list *dns_conn_asks(struct dns_conn *c);

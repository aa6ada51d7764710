/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One captured connection. Internal to src/egress.
 *
 *   flow.c        its life: accepted, sniffed, ended; what is told of it
 *   flow_judge.c  who it is for, and whether it may: by name and address, or by address alone
 *   flow_dial.c   upstream, and bytes both ways
 *   flow_http.c   requests: plain HTTP, and what interception opened
 *   flow_inject.c secrets in them
 *   flow_tls.c    interception
 *
 * A connection that is judged by address because the client says nothing yet (or because on that port the server
 * usually speaks first) is dialled; the client's first bytes are looked at all the same, unless the server's come
 * first: FLOW_WATCH.
 *
 * States follow one another; each has one thing that is waited for:
 *   SNIFF (the client's first bytes) -> RESOLVE (is the address one of that name?) -> DIAL -> TLS_WORLD, TLS_SANDBOX
 *   (interception) -> OPEN
 * Plain HTTP goes from SNIFF to OPEN, and dials when its first request was allowed.
 */
#pragma once

#include "egress/flow/side.h"
#include "egress/http/exchange.h"
#include "egress/internal.h"
#include "egress/tls/hello.h"

enum {
    FLOW_SNIFF_MS = 300, /* a client that says nothing waits for the server to speak: judged by address */
    /* For the rest of a ClientHello, once begun; for all of it, where the connection could be allowed by its name
     * alone. */
    FLOW_HELLO_MS = 10000,
    FLOW_DIAL_MS = 10000,
    /* A connection that is passed through ends when nothing was sent either way for so long; keepalives only tell
     * whether the peer is there. */
    FLOW_STILL_MS = 3600 * 1000,

    /* The kernel keeps of a connection, each way: what it sees fit while a sandbox has up to FAST_MAX, MEDIUM_BYTES up
     * to MEDIUM_MAX, SLOW_BYTES of more. */
    FLOW_FAST_MAX = 16,
    FLOW_MEDIUM_MAX = 128,
    FLOW_MEDIUM_BYTES = 256 * 1024,
    FLOW_SLOW_BYTES = 32 * 1024,

    FLOW_REQUESTS_MAX = 128,  /* of a connection, that are not answered yet */
    FLOW_REQUESTS_LEAST = 16, /* so many even where the sandbox's connections together keep too much (exchange.h) */
    FLOW_FIRST_LEAST = 4096,  /* so much of its first bytes even then; more than most ClientHellos have */
    FLOW_ANSWERED_MAX = 100,  /* EXCHANGE_STREAMS_MAX: as many as can be under way */
    FLOW_LOOKUPS_MAX = 64,    /* of a sandbox, under way: for ClientHellos whose name it did not resolve through us */
};

enum flow_state {
    FLOW_SNIFF,
    FLOW_RESOLVE,
    FLOW_DIAL,
    FLOW_WATCH,
    FLOW_TLS_WORLD,
    FLOW_TLS_SANDBOX,
    FLOW_OPEN,
    FLOW_ENDED
};
enum flow_proto { FLOW_TCP, FLOW_TLS, FLOW_HTTP };

/* A request that was allowed; until the head of its answer came in `requests`, then in `answered`, because its body may
 * go on for long. */
struct flow_request {
    struct list node;
    uint64_t id;
    usec_t at;
    char *method, *path; /* owned */
    size_t kept;         /* of its memory, counted for the sandbox */
    char authority[HOSTNAME_MAX + 8];
    bool belongs; /* the address to that name */
    int rule;
    json_t *injected; /* names of secrets; owned */
};

struct flow {
    struct list node;
    struct list turn; /* in the net's turns */
    struct net *net;  /* holds a reference */
    uint64_t id;
    enum flow_state state;
    enum flow_proto proto;
    uv_timer_t timer;
    struct netaddr to; /* where the client wants to go */
    uint16_t port;
    char name[HOSTNAME_MAX + 1]; /* normalised, as the client said and we checked; "": none */
    struct buf first;            /* read from the client and not passed on yet */
    size_t first_kept;           /* of it, counted for the sandbox */
    struct hello hello;
    struct resolver_lookup *lookup;
    char *looked_up;                /* plain HTTP: what `lookup` asks for, or has just answered; owned; NULL: nothing */
    struct side *client, *upstream; /* owned until a relay or an exchange takes them */
    int buffer_bytes;               /* side_tcp_bound() of both; 0: none */
    struct relay *relay;
    struct exchange *exchange;
    struct list requests, answered; /* of the second, those that are through are the first to be forgotten */
    unsigned n_requests, n_answered;
    bool forgot;        /* one that may still be under way is not in `answered` any more */
    bool forgot_secret; /* and had been given one */
    bool belongs;       /* the address to `name` */
    bool patient;       /* the client was silent for FLOW_SNIFF_MS, and is waited for longer */
    bool silent;        /* judged before the client said anything */
    bool intercepted, told;
    bool intercepted_counted; /* in n_intercepted of the net and of all */
    int rule;                 /* that allowed it */
    usec_t opened;
    uint64_t sent, received; /* of the client, by it */
};

/* The connections of its sandbox keep as much as they may. */
static inline bool flow_is_full(const struct flow *f)
{
    return f->net->share.held > EXCHANGE_SHARE_MAX;
}

struct flow *flow_new(struct net *n, int fd, const struct netaddr *to,
                      uint16_t port); /* takes fd; nothing is judged yet */
void flow_begin(struct flow *f);      /* reads what it is, and goes on from there */

/* Nothing is read from the client until somebody else takes it; but it may go away. */
void flow_wait(struct flow *f);

/* Ends it; error NULL: in good order. Everything that is left is closed, with a reset when it did not end by itself. */
void flow_end(struct flow *f, const char *error);

/* Refused: tells cove-api and ends it, as its protocol says no. */
void flow_refuse(struct flow *f, const struct policy_answer *why);
void flow_refusef(struct flow *f, const char *fmt, ...) PRINTF_LIKE(2, 3); /* a reason of our own */

void flow_forget_first(struct flow *f);

/* It goes somewhere: the "open" event. */
void flow_tell_open(struct flow *f);

/* Upstream is connected, and nobody has said anything: whoever speaks first says how it goes on. */
void flow_watch(struct flow *f);

/* flow_judge.c. The answers say why in any case. */
void flow_judge_name(struct flow *f, struct str sni); /* TLS: goes on, or refuses */
void flow_judge_address(struct flow *f);              /* no name: goes on, or refuses */
bool flow_lacks_a_name(const struct flow *f); /* refused by address, and allowed by a name that it is known by */
bool flow_still_allowed(struct flow *f);      /* an open one, after a change of policy */
void flow_cancel_lookup(struct flow *f);      /* where there is one */
void flow_query(const struct flow *f, const char *name, struct policy_query *ret_query);

/*
 * Plain HTTP: does f's address belong to this name of a request? True: our resolver is asked now, and the exchange
 * resumed with the answer. False: it was, or may not be.
 */
bool flow_look_up(struct flow *f, const char *name);

/*
 * Is this name (normalised, or NULL) with f's address allowed? Both alone: when the sandbox did not learn the address
 * from us as one of that name's, the address must be allowed without the name's help, and none of the names that it is
 * known by may be denied.
 */
void flow_judge_pair(struct flow *f, const char *name, bool belongs, struct str method, struct str path,
                     struct policy_answer *ret_answer);

/* flow_dial.c */
void flow_connect(struct flow *f, const struct side_ops *ops); /* f->upstream; ops may be NULL */
void flow_relay(struct flow *f);                               /* bytes both ways, the client's first in front */
void flow_dial(struct flow *f); /* upstream, then: relay, or interception, or the exchange gets it */

/* flow_http.c */
void flow_http(struct flow *f); /* plain: the client's side and its first bytes go to an exchange */
void flow_http_open(struct flow *f, struct str alpn); /* both sides are TLS */
void flow_requests_fini(struct flow *f);

/* flow_inject.c */
struct flow_reading { /* what a server may take a request for */
    struct str method, path;
};
struct flow_injections {
    const struct policy_inject *all[POLICY_INJECT_MAX];
    unsigned seen[POLICY_INJECT_MAX]; /* in so many readings */
    size_t n;
};
/* Those that apply to each of the readings. */
void flow_injections(struct flow *f, const char *name, const struct flow_reading *readings, size_t n,
                     struct flow_injections *ret_in);
bool flow_injections_same(const struct flow_injections *a, const struct flow_injections *b);
bool flow_inject_wants_body(const struct exchange_head *h, const struct flow_injections *in);
/* names: gets those of what was put in. What failed may have changed the head. */
int flow_inject(struct flow *f, struct exchange_head *h, const struct flow_injections *in, json_t *names,
                struct err *err) WARN_UNUSED;
/* After what belongs here was replaced, a sentinel that is left goes where it doesn't belong. */
void flow_notice_misuse(struct flow *f, const struct exchange_head *h, const char *name);
/* Values that were put into r, in fields of its answer. */
void flow_mask(struct flow *f, const struct flow_request *r, struct arena *arena, struct http_header *fields, size_t n);
void flow_mask_all(struct http_header *fields, size_t n); /* where nobody knows any more what was put in */

/* flow_tls.c */
void flow_tls(struct flow *f); /* upstream is connected */
void flow_turns_start(struct egress *e);
void flow_turns_stop(struct egress *e);

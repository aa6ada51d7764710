/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request that the façade is answering.
 *
 * Theory of operation
 *  1. A call is made for each request and lives until the request is over (http_on_close) and nothing of the core will call back
 *     for it: operations that can be cancelled are (call->exec, call->file, the handler's own by call->cleanup); for those that
 *     can't, the handler holds the call with call_ref() and finds req NULL when its client has gone meanwhile.
 *  2. A handler answers exactly once: by call_json(), call_fail() and their like, or by beginning a stream and ending it.
 *  3. A call with a sandbox that ends before it is answered is cut (http_abort), never answered: clients tell a sandbox that died
 *     under a request from an error of the request by that.
 */
#pragma once

#include "api/e2b/e2b.h"
#include "api/e2b/route.h"
#include "api/e2b/timers.h"
#include "api/json_read.h"
#include "api/key_name.h"
#include "api/refusals.h"
#include "api/slices.h"
#include "base/buf.h"
#include "base/map.h"
#include "sandbox/exec.h"
#include "sandbox/files.h"

#define ENVD_VERSION "0.6.13"
enum { ENVD_PORT = 49983 };

enum {
    BODY_MAX = 1024 * 1024,           /* of a request whose body is JSON */
    INPUT_BODY_MAX = 6 * 1024 * 1024, /* of one that carries input for a process: 4 MiB in base64 */
    REPLY_MAX = 32 * 1024 * 1024,     /* of a JSON answer */
};

struct builder;

struct e2b {
    struct core *core;
    struct builder *builder;   /* NULL: nothing is built here */
    struct refusals *refusals; /* NULL: nobody is told */
    char *api_key;
    char *domain;
    char control_actor[KEY_NAME_MAX];
    struct timers timers;
    struct slices slices;        /* walks through logs */
    struct map watchers;         /* id -> struct watcher, see envd_watchers.c */
    struct map traffic;          /* sandbox -> struct traffic, see port_proxy.c */
    struct map creations_by_key; /* Idempotency-Key -> struct creation, see control_create.c */
    struct list creations;
    struct buf scratch;    /* for frames: one is built and handed to http before the next */
    char chunk[64 * 1024]; /* for (de)compression, likewise */
};

struct call {
    struct e2b *e2b;
    struct http_request *req; /* NULL: over */
    struct sandbox *sandbox;  /* referenced; NULL for calls that name none */
    struct actor actor;
    struct str user;                 /* data plane: who it runs as; empty: the default user */
    struct str args[ROUTE_ARGS_MAX]; /* of the route, decoded */
    const struct route *route;
    struct exec_call *exec; /* pending, cancelled with the request */
    struct file_call *file;
    struct sandbox_watch watch;
    struct timer timer;              /* of the handler; stopped with the request */
    void (*cleanup)(struct call *c); /* the handler's: the request is over, req still valid */
    void (*on_json)(struct call *c, const json_t *body);
    void (*on_timer)(struct call *c);
    struct buf large; /* what is left of a large answer */
    void *state;      /* the handler's, usually in http_arena() */
    unsigned refs;
    uint64_t timeout_ms; /* Connect-Timeout-Ms; 0: none */
    bool streams;        /* an RPC that answers in envelopes, errors included */
    bool watching, answered;
};

/* Its client is turned away. */
void e2b_note_refusal(struct e2b *e2b, const struct http_request *req, enum refusal why);

/* The key that a request came with, in either of its two headers (p NULL: none), and whether it is the service's. */
struct str e2b_key_given(const struct http_request *req);
bool e2b_key_is(const struct e2b *e2b, struct str given); /* false when no key is in force */

/* Makes the call and ties it to the request. */
struct call *call_new(struct e2b *e2b, struct http_request *req, const char *actor);
void call_ref(struct call *c);
void call_unref(struct call *c);

/* Takes a reference on the sandbox and cuts the request should it end before the answer. */
void call_use_sandbox(struct call *c, struct sandbox *sb);

/*
 * What failed with this code failed because the sandbox is no longer running? Then true: the request was cut, or, when the sandbox is only paused
 * and the answer has not begun, told so; there is nothing left to do.
 */
bool call_lost(struct call *c, enum err_code code);

/* The answer. In each case the call is finished then; what comes after the first answer is dropped. */
void call_respond(struct call *c, int status, const char *content_type, struct str body);
void call_json(struct call *c, int status, struct str body);
void call_empty(struct call *c, int status);
void call_fail(struct call *c, int status, const char *fmt, ...) PRINTF_LIKE(3, 4); /* {"code":…,"message":…} */
void call_fail_err(struct call *c, const struct err *err); /* by connect_status(), cut when the sandbox is lost */
void call_done(struct call *c);                            /* a stream that the handler ended or aborted itself */

/* A body that may be larger than what http queues; takes the buffer's content. Its error, if any, becomes a 500. */
void call_json_buf(struct call *c, int status, struct buf *body);

/*
 * Reads the JSON body and calls fn with it, an object; answers by itself what is malformed. A body that is not application/json is
 * refused, because browsers send those without asking first. required: an empty one is refused, else it counts as {}.
 */
void call_read_json(struct call *c, bool required, void (*fn)(struct call *c, const json_t *body));

void call_set_timer(struct call *c, uint64_t ms, void (*fn)(struct call *c));

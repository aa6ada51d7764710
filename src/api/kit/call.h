/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request that a façade is answering.
 *
 * Theory of operation
 *  1. A call is made for each request and lives until the request is over (http_on_close) and nothing of the core will
 *     call back for it. What can be cancelled is cancelled with the request (call->exec, call->file, the handler's own
 *     by call->cleanup). What can't be holds the call: call_hold() is its context, and call_back() finds out whether
 *     anybody still waits.
 *  2. A handler answers exactly once: by call_json(), call_fail() and their like, or by beginning a stream and ending
 *     it.
 *  3. A call that uses a sandbox (call_use_sandbox()) which ends before it is answered is cut (http_abort), unless the
 *     façade knows better: clients tell a sandbox that died under a request from an error of the request by that.
 *  4. A handler is a step: it has changed nothing when the action that it begins fails. An action that waits for an
 *     answer (ERR_HELD, sandbox/hold.h) parks the call, whatever is answered then, and the step is run again. What a
 *     step left in the call (cleanup, state) is undone before. A handler that goes on to another action when the first
 *     one is done says so by call_step(); an action that is begun outside of steps can't wait.
 */
#pragma once

#include "api/kit/access.h"
#include "api/kit/facade.h"
#include "api/kit/json_read.h"
#include "api/kit/json_write.h"
#include "http/request.h"
#include "sandbox/code/code.h"
#include "sandbox/exec/exec.h"
#include "sandbox/files/files.h"
#include "sandbox/hold.h"
#include "sandbox/quota.h"

struct call_body_ops;
struct pull;
struct upload_queue;

enum { CALL_REPLY_MAX = 32 * 1024 * 1024 }; /* of a JSON answer */

struct call {
    struct facade *facade;
    struct http_request *req; /* NULL: over */
    struct sandbox *sandbox;  /* referenced; NULL for calls that name none */
    struct actor actor;
    struct holder holder;
    void (*step)(struct call *c);
    struct str user;                 /* who it runs as; empty: the default user */
    struct str args[ROUTE_ARGS_MAX]; /* of the route, decoded and terminated */
    json_t *body;                    /* of routes that have one; owned */
    const struct route *route;
    struct exec_call *exec; /* pending, cancelled with the request */
    struct file_call *file;
    void (*on_exec)(struct call *c);
    void (*on_file)(struct call *c, const struct file_entry *entry);
    void (*on_file_end)(struct call *c, const struct file_entry *entry, const struct err *err);
    struct follow *follow;        /* closed with the request */
    struct code_cell *cell;       /* left with it */
    struct code_making *making;   /* cancelled with it */
    struct upload_queue *uploads; /* freed with it */
    struct pull *pull;            /* an image that is waited for (pull.h); in http_arena() */
    struct file_body *filling;    /* what its body goes to (file_body.h); borrowed */
    void (*ack)(struct call *c, size_t n);
    size_t unacked;
    const struct call_body_ops *body_ops;
    struct buf in; /* of the body: what is there and not taken yet */
    bool in_ended; /* no more comes */
    void (*on_input)(struct call *c);
    struct err err; /* of what was tried last */
    struct sandbox_watch watch;
    struct timer timer;              /* of the handler; stopped with the request */
    struct slice slice;              /* the same */
    void (*cleanup)(struct call *c); /* the handler's: the request is over, req still valid */
    void (*on_body)(struct call *c);
    void (*on_timer)(struct call *c);
    void (*on_later)(struct call *c);
    void (*on_drain)(struct call *c);
    struct charge charge; /* one of the requests of its tenant */
    struct buf large;     /* what is left of a large answer */
    void *state;          /* the handler's, usually in http_arena() */
    struct list node;     /* the same */
    unsigned refs;
    uint64_t timeout_ms;    /* that the client asks for; 0: none */
    const char *body_error; /* instead of the façade's; NULL: that */
    bool watching, cuts, answered;
    bool is_held; /* parked: its step is run again */
};

/* Makes the call and ties it to the request. */
struct call *call_new(struct facade *f, struct http_request *req, const char *actor);
void call_unref(struct call *c);

static inline struct core *call_core(const struct call *c)
{
    return c->facade->core;
}

/* Decodes the arguments, reads the body, finds the sandbox, as the route wants; then its handler. */
void call_run(struct call *c, const struct route *route, const struct str args[static ROUTE_ARGS_MAX]);

/* Memory that the call holds until it is over. False: its tenant has too much already, which is answered (429). */
bool call_takes(void *call, size_t bytes);

/* The body, if the route has one; then that. What is malformed is answered. */
void call_read(struct call *c, void (*then)(struct call *c));

/* c->state of a handler that starts: zeroed memory of the request; and what undoes the handler, or NULL. */
void *call_state(struct call *c, size_t n, void (*cleanup)(struct call *c));

/* The route's handler, as a step. */
void call_start(struct call *c);
/* What the call does next: c->state stays. */
void call_step(struct call *c, void (*step)(struct call *c));

/* Takes a reference on the sandbox and cuts the request should it end before the answer. */
void call_use_sandbox(struct call *c, struct sandbox *sb);

/*
 * The context for an operation that can't be cancelled. Its callback begins with call_back(): NULL when the client has
 * gone, or when err was answered here. An operation that fails at once is answered by call_drop().
 */
struct call *call_hold(struct call *c);
struct call *call_back(void *ctx, const struct err *err);
void call_drop(struct call *c, const struct err *err);

/*
 * Of something that was tried with &c->err: r < 0 is answered, and false. call_held(): of an operation with
 * call_hold().
 */
bool call_ok(struct call *c, int r);
void call_held(struct call *c, int r);

/*
 * The last four arguments of an operation of the core that ends with the request. A failure is answered, else `then`
 * comes:
 *
 *     call_ok(c, file_stat(c->sandbox, &c->actor, c->user, path, CALL_FILE(c, on_entry)));
 *
 * CALL_FILE_END: a failure that comes later is left to `then`.
 */
#define CALL_FILE(c, then) call_on_file, ((c)->on_file = (then), (c)), &(c)->file, &(c)->err
#define CALL_FILE_END(c, then) call_on_file_end, ((c)->on_file_end = (then), (c)), &(c)->file, &(c)->err
#define CALL_EXEC(c, then) call_on_exec, ((c)->on_exec = (then), (c)), &(c)->exec, &(c)->err
void call_on_file(void *call, const struct file_entry *entry, const struct err *err);
void call_on_file_end(void *call, const struct file_entry *entry, const struct err *err);
void call_on_exec(void *call, const struct err *err);

/*
 * The pace of a stream: n bytes, or events, of its source were written to the client. ack gives them back when the
 * kernel has them, so that none is lost with this process; NULL: to c->follow, to c->cell, or to the read that c->file
 * is.
 */
void call_pace(struct call *c, void (*ack)(struct call *c, size_t n));
void call_paced(struct call *c, size_t n);
size_t call_room(void *call);       /* for struct exec_ops: none while the queue is long */
bool call_has_room(struct call *c); /* false: ack comes when it has */

/* The body as it comes, and its end; neither once the call is answered. */
struct call_body_ops {
    void (*on_data)(struct call *c, struct str data);
    void (*on_end)(struct call *c);
};
void call_stream_body(struct call *c, const struct call_body_ops *ops);

/*
 * The body for who takes it in portions of its own, each when the one before is dealt with. What has come stands in
 * c->in, at most max bytes: a piece of the body and the beginning of a portion. take() comes with each piece and at
 * the end; it consumes what it can, and says by call_await_body() whether it waits for something else: meanwhile
 * nothing is read.
 */
void call_gather_body(struct call *c, size_t max, void (*take)(struct call *c));
void call_await_body(struct call *c, bool is_busy);

/* What failed with this code failed because its action waits, or because the sandbox is gone, and that was answered:
 * there is nothing left to do. */
bool call_lost(struct call *c, enum err_code code);

/* The answer. In each case the call is finished then; what comes after the first answer is dropped. */
void call_respond(struct call *c, int status, const char *content_type, struct str body);
void call_json(struct call *c, int status, struct str body);
void call_json_buf(struct call *c, int status,
                   struct buf *body);                      /* takes the content, of any size; its error is a 500 */
bool call_has_type(const struct call *c, struct str type); /* its body, but for parameters */
json_t *call_text(struct str s);                           /* a JSON text; what isn't UTF-8 becomes U+FFFD */
json_t *call_cstr(const char *s);                          /* the same; NULL for NULL */
json_t *call_time(usec_t at);                              /* RFC 3339; NULL for 0: left out ("o*"), or null ("o?") */
void call_value(struct call *c, int status, json_t *json); /* takes it */
void call_empty(struct call *c, int status);
/* All return false, for functions whose false means that it was answered. */
bool call_fail(struct call *c, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool call_refuse(struct call *c, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool call_fail_err(struct call *c, const struct err *err);
bool call_fail_hint(struct call *c, const struct err *err, const char *hint); /* NULL: the façade's, if it has one */
#define CALL_HINT_TEMPLATE                                                                                             \
    "'cove template ls' lists the templates there are; 'cove template build --name NAME'"                              \
    " makes one of a Dockerfile, and with --from-image IMAGE of an image"
void call_done(struct call *c); /* a stream that the handler ended or aborted itself */
void call_end(struct call *c);  /* the end of a stream: nothing more comes */

/* Parameters of the query. False: absent, or malformed, which counts as absent for optional ones. */
bool call_query(struct call *c, const char *name, struct str *ret_value);
/* A number, 0 when absent; true, false, 1, 0 or the bare name, which is true. -1: answered. */
int call_query_u64(struct call *c, const char *name, uint64_t *ret_value) WARN_UNUSED;
int call_query_bool(struct call *c, const char *name, bool *ret_value) WARN_UNUSED;

/*
 * The members of the body, into variables: CALL_WANTS(c, JSON_WANT_BOOL("memory", &memory), ...). False: something was
 * wrong, and answered. A null or absent member leaves its variable as it is.
 */
#define CALL_WANTS(c, ...)                                                                                             \
    call_wants((c), (const struct json_want[]){__VA_ARGS__}, ARRAY_SIZE(((const struct json_want[]){__VA_ARGS__})))
bool call_wants(struct call *c, const struct json_want *wants, size_t n);

void call_set_timer(struct call *c, uint64_t ms, void (*fn)(struct call *c));
void call_later(struct call *c, void (*fn)(struct call *c)); /* goes on in a later turn, as slices.h says */
/* When the client has taken what was queued for it; not together with call_pace(). */
void call_on_drain(struct call *c, void (*fn)(struct call *c));

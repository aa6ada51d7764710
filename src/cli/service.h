/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the service and its native API. Errors end up in the context (err and hint), said so that a person
 * knows what to do. Expects that json_set_alloc_funcs(mem_alloc, mem_free) was called.
 */
#pragma once

#include "base/json.h"
#include "cli/command.h"
#include "http/client/client.h"

struct service;

/* Connects to --host, COVE_HOST or the local socket. NULL: ctx->err. */
struct service *service_open(struct context *ctx);
void service_close(struct service *s);
DEFINE_AUTO(struct service *, service_close)

struct http_client *service_client(struct service *s);

/*
 * A request with a JSON answer. body NULL: none. ret_json may be NULL. -1: ctx->err, also for an answer of 400 and up.
 * `what` is for the line that appears when it takes long: "creating a sandbox"; NULL: no line.
 */
int service_call(struct service *s, const char *method, const char *target, const json_t *body, const char *what,
                 json_t **ret_json) WARN_UNUSED;

/* service_call() over a connection of its own, for who asks one thing. target NULL: ctx->err says why. */
int service_ask(struct context *ctx, const char *method, const char *target, const json_t *body, const char *what,
                json_t **ret_json) WARN_UNUSED;

/* The same of the sandbox that the first operand names, and its full id; ret_id may be NULL. */
int service_ask_sandbox(struct context *ctx, const char *method, const char *suffix, const json_t *body,
                        const char *what, char **ret_id, json_t **ret_json) WARN_UNUSED;

/* A request without body whose answer streams: 0 when the status was below 400, then read from service_client(). */
int service_stream(struct service *s, const char *method, const char *target) WARN_UNUSED;

/* A request whose body the caller sends: its headers. Then service_client(), then service_answer(). */
int service_begin(struct service *s, const char *method, const char *target, int64_t content_length) WARN_UNUSED;
int service_answer(struct service *s, const char *what, json_t **ret_json) WARN_UNUSED;

/* A request with headers of the caller's, of which nothing is waited for: then service_client(). -1: ctx->err. */
int service_send(struct service *s, const char *method, const char *target, const struct http_header *more,
                 size_t n_more, struct str body) WARN_UNUSED;

/* POST with a JSON body that asks for an upgrade; 0 when the service answered 101. */
int service_upgrade(struct service *s, const char *target, const json_t *body, const char *protocol) WARN_UNUSED;

/*
 * The next of a stream of JSON objects, one a line, borrowed until the next call or request: 1, 0 at the end, -1. That
 * also for a line that is none, and for {"error":{...}}, which is how a stream ends that can't be gone on with.
 */
int service_object(struct service *s, json_t **ret_object) WARN_UNUSED;
struct str service_line(const struct service *s); /* as it came, without its end */

/* The code that an error of the service has: {"code":"not_found",...}. */
enum err_code service_error_code(const json_t *error, enum err_code otherwise);

/* The full id of what the person wrote: the beginning of one, or what the sandbox is called. -1: none or several. */
int service_resolve(struct service *s, const char *text, char **ret_id) WARN_UNUSED;
int service_resolve_log(struct service *s, const char *text, char **ret_id) WARN_UNUSED; /* or one that has ended */
int service_newest(struct service *s,
                   char **ret_id) WARN_UNUSED; /* of the one that was made last, also when it has ended */

/* Puts a transport error (-errno) into ctx->err. Returns -1. */
int service_broken(struct service *s, int error, const char *doing);

/*
 * All sandboxes that live, as an array. Own: of the tenant that makes them here; where metadata says which sandbox is
 * meant, another tenant's could say the same.
 */
int service_sandboxes(struct service *s, json_t **ret_array) WARN_UNUSED;
int service_own_sandboxes(struct service *s, json_t **ret_array) WARN_UNUSED;
int service_ended(struct service *s, json_t **ret_array) WARN_UNUSED; /* those that ended last, latest end first */

/* "/cove/v1/sandboxes/<id><suffix>", with printf. Free with mem_free(). */
char *service_target(const char *id, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Of the routes "files" and "archive"; user NULL: the default one. Free with mem_free(). */
char *service_files(const char *id, const char *route, const char *path, const char *user);
int service_put(struct service *s, const char *target, struct str body) WARN_UNUSED; /* what such a file holds */

/* The id of a sandbox that the service has just made, out of its answer. */
int service_id(struct context *ctx, const json_t *sandbox, char **ret_id) WARN_UNUSED;

int service_remove(struct service *s, const char *id, const char *what) WARN_UNUSED;
/* Over connections of their own, beside what goes on: a failure is nobody's trouble. */
void service_remove_aside(struct context *ctx, const char *id);
void service_extend_aside(struct context *ctx, const char *id, uint64_t ms); /* it lives for that long, or longer */
json_t *service_look_aside(struct context *ctx, const char *id);             /* as it is now; NULL: it can't be asked */

/* before + name + behind, the name encoded. Free with mem_free(). NULL: ctx->err. */
char *service_path(struct context *ctx, const char *before, const char *name, const char *behind);

const char *service_text(const json_t *object, const char *name);          /* "": there is no such text */
unsigned long long service_number(const json_t *object, const char *name); /* 0: there is no such number */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native API under NATIVE_PREFIX, for the command line and the console: plain JSON over HTTP, streams where things
 * stream. docs/API.md describes each route. Errors are {"error":{"code":"not_found","message":"...","hint":"..."}} with
 * the status that Connect gives the code.
 *
 * Who may: over the unix socket root and the service's owner, by peer credentials; over TCP who has the key
 * (Authorization: Bearer, or X-API-Key).
 */
#pragma once

#include "http/request.h"

#define NATIVE_PREFIX "/cove/v1"
enum { NATIVE_BODY_MAX = 1 << 20 };

struct builder;
struct core;
struct err;
struct event_log;
struct event_verdict;
struct native;
struct refusals;

/* Why no sandbox can be made now: a word, and a sentence without figures, for anybody may ask. Both static. */
struct native_obstacle {
    const char *code, *message;
};

struct native_config {
    struct core *core;        /* borrowed, outlives the façade */
    struct builder *builder;  /* the same; NULL: templates are not built here */
    struct event_log *events; /* borrowed */
    /* Checks the chain of a sandbox's log: event_verify() on a reader of its own, because it is called in another
     * thread. */
    int (*verify)(void *ctx, const char *sandbox, struct event_verdict *ret_verdict, struct err *err);
    void *verify_ctx;
    /* Signs what a log says (daemon/notary.h); in another thread, too. NULL: nothing is signed here. */
    int (*sign)(void *ctx, const char *what, struct buf *ret, struct err *err);
    void *sign_ctx;
    /* What coved says of itself; its message NULL: nothing is in the way. NULL: it is not asked. */
    struct native_obstacle (*supervisor)(void *ctx);
    void *supervisor_ctx;
    struct refusals *refusals; /* borrowed: who was turned away; NULL: is not told */
    uid_t owner_uid;
    bool domain_has_tls;
    uint64_t default_timeout_ms; /* for a request without timeout_ms */
    const char *version;
};

struct native *native_new(const struct native_config *config);
void native_free(struct native *n); /* all requests must have ended */

/* A claim (api/kit/facade.h) of NATIVE_PREFIX. */
bool native_serve(void *native, struct http_request *req);
bool native_claims_metrics(const struct http_request *req); /* the one route that isn't under the prefix */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every façade is made of. A façade translates one protocol: it has a table of routes (route.h), handlers that
 * answer calls (call.h), and these few decisions of its own. Which requests are its own is said by a table of claims.
 */
#pragma once

#include "api/kit/refusals.h"
#include "api/kit/route.h"
#include "api/kit/slices.h"
#include "api/kit/timers.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/map.h"
#include "sandbox/core.h"

struct facade;
struct sandbox_info;

struct facade_ops {
    const char *name;         /* in the record of who was turned away; a literal */
    size_t body_max;          /* of a body that is JSON */
    const char *body_error;   /* in front of what is wrong with a body; "" for nothing */
    bool wants_json_type;     /* bodies say that they are JSON: browsers send no such without asking first */
    bool refuses_unknown;     /* a member of a body that nobody asked for is an error */
    int malformed_status;     /* of a body or a query that is not of the form that it must have; 0: 400 */
    const char *method_error; /* what is said of a path that has no such method; NULL: as if there were no such path */
    int method_error_status;

    /* Who asks? Says so by access.h; false: refused and answered. Not asked for routes that are ROUTE_OPEN. */
    bool (*authenticate)(struct call *c);
    /* The sandbox that args[0] names, for routes that are ROUTE_SANDBOX; NULL: answered. */
    struct sandbox *(*find_sandbox)(struct call *c);
    /* The body of an error answer. hint: what to do next, or NULL. Not asked where there is answer_error. */
    void (*append_error)(struct buf *b, int status, enum err_code code, struct str message, const char *hint);

    /* May be NULL. Answers with an error: where that depends on the request. */
    void (*answer_error)(struct call *c, int status, enum err_code code, struct str message, const char *hint);
    /* May be NULL. The status for an error, where that isn't connect_status()'s; may say it in other words. */
    int (*status_of)(const struct call *c, struct err *err);
    /* What to do next about an error, where nobody said it; the answer may be NULL, too. */
    const char *(*hint)(const struct err *err);
    /* A call whose sandbox is gone: true when that was answered in another way than by the error. */
    bool (*is_lost)(struct call *c, enum err_code code);
    /* The sandbox has ended under a call that is not answered yet; NULL: its connection is cut. */
    void (*on_sandbox_end)(struct call *c);
    /* Before anything else of a route that is known: true, the request was answered (a browser that asks first). */
    bool (*preflight)(struct facade *f, struct http_request *req);
};

/* Embedded in the façade's own struct. */
struct facade {
    const struct facade_ops *ops;
    struct core *core;         /* borrowed, outlives the façade */
    struct refusals *refusals; /* the same; NULL: nobody is told */
    struct timers timers;
    struct slices slices; /* walks through logs */
};

void facade_init(struct facade *f, const struct facade_ops *ops, struct core *core, struct refusals *refusals);
void facade_fini(struct facade *f); /* when all requests have ended; harmless on zeroes */

/* Runs the request through the table. False, with nothing done, when no pattern fits its path. */
bool facade_serve(struct facade *f, const struct route *routes, size_t n, struct http_request *req);

/* The same for a table whose patterns are of a part of the path, raw: behind a prefix. */
bool facade_serve_at(struct facade *f, const struct route *routes, size_t n, struct str path, struct http_request *req);

/* Is this key of a sandbox's metadata a façade's own note, which no client is shown? And the metadata without those. */
bool facade_owns_key(struct str key);
json_t *facade_metadata(const struct sandbox_info *info);

/* The end of a map whose values, when they are freed, take themselves out. */
void facade_drain(struct map *m, void (*free_value)(void *value));

/* Its client is turned away. */
void facade_note_refusal(struct facade *f, const struct http_request *req, enum refusal why);

/* Which façade a request is for: the first claim that fits and takes it. */
struct claim {
    const char *prefix;                           /* of the path; NULL: any */
    const char *header;                           /* that the request has; NULL: any */
    bool (*fits)(const struct http_request *req); /* by Host, or by more than one header; NULL: always */
    /* False, with nothing done: it was not for this façade after all. */
    bool (*serve)(void *facade, struct http_request *req);
    void *facade;
};

/* False: nobody took it, and nothing is answered. */
bool claims_serve(const struct claim *claims, size_t n, struct http_request *req);

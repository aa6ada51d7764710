/* SPDX-License-Identifier: Apache-2.0 */
/* What the handlers of the E2B façade share. */
#pragma once

#include "api/e2b/e2b.h"
#include "api/kit/call.h"
#include "base/map.h"

#define ENVD_VERSION "0.6.13"
enum { ENVD_PORT = 49983 };

enum {
    BODY_MAX = 1024 * 1024,           /* of a request whose body is JSON */
    INPUT_BODY_MAX = 6 * 1024 * 1024, /* of one that carries input for a process: 4 MiB in base64 */
    REPLY_MAX = CALL_REPLY_MAX,
    SCRATCH_MAX = 512 * 1024,
    CREATIONS_MAX = 4096,
};

struct e2b {
    struct facade facade;
    struct builder *builder; /* NULL: nothing is built here */
    char *domain;
    struct map watchers;         /* id -> struct watcher, see envd_watchers.c */
    struct map creations_by_key; /* "<tenant>/<Idempotency-Key>" -> struct creation, see control_create.c */
    struct list creations;
    size_t creations_max;  /* CREATIONS_MAX, but in tests */
    struct buf scratch;    /* for frames: one is built and handed to http before the next */
    char chunk[64 * 1024]; /* for (de)compression, likewise */
};

static inline struct e2b *e2b_of(const struct call *c)
{
    return container_of(c->facade, struct e2b, facade);
}

/* {"code":<status>,"message":"<message>"}, the error body of REST routes. */
json_t *e2b_error(int status, struct str message);

/* events.c: E2B's events API: the lives of sandboxes as a list, and webhooks that are told of them, signed. */
void events_list(struct call *c); /* of all, or of the one in args[0], which may be gone */
route_handler events_webhooks, events_webhook_create, events_webhook_get, events_webhook_set, events_webhook_remove;

/* interpreter.c: E2B's code interpreter, as its SDKs find it on port 49999 of a sandbox whose template runs code
 * (sandbox/code/code.h). There is no server inside. */
enum { INTERPRETER_PORT = 49999 };

extern const struct route interpreter_routes[];
extern const size_t interpreter_routes_n;

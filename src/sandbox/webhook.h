/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Webhooks: somebody outside is told of the lives of a tenant's sandboxes.
 *
 *  1. A webhook has a cursor in the feed and nothing else: it was told of all events up to there. So it waits for its
 *     target without a queue, goes on after a restart, and may be told of an event twice when the service dies just
 *     then, which its receiver sees by the event's id.
 *  2. One delivery at a time for each webhook, in order. One that fails is tried again with growing pauses; after
 *     WEBHOOK_TRIES it is given up, and recorded. No webhook waits for another.
 *  3. cove-api connects to nobody: cove-egress sends it (wire/egress.h, "post"), and judges the target, its address
 *     included. Unless the configuration says otherwise it is public: a tenant reaches neither this machine nor its
 *     network by it.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "sandbox/core.h"
#include "store/event_rows.h"

enum {
    WEBHOOK_ID_LEN = 19,
    WEBHOOK_URL_MAX = 2000,
    WEBHOOK_TEXT_MAX = 200,
    WEBHOOKS_OF_ONE = 10,
    WEBHOOKS_MAX = 200,
    WEBHOOK_TRIES = 12
};

/*
 * What happened to it: "created", "killed", "updated", "paused", "resumed", "checkpointed"; NULL: nothing that webhooks
 * report.
 */
const char *life_type(const struct life_row *row);

/* The façade's words. */
struct core_webhooks {
    void (*write)(const struct life_row *row, const char *tenant, struct buf *b); /* the body: a JSON object */
    /* Into an object of strings. */
    void (*sign)(json_t *headers, const char *webhook, const char *delivery, struct str secret, struct str body);
};

/*
 * The next part of them: few enough for one turn of the loop, however many there are and whosever they are. From the
 * first call, where `to` is UINT64_MAX for all, *want says what is left. 1: call again for that, 0: that was all;
 * either also if fn has said that it has enough. want->tenant is set here.
 */
int life_each(struct core *core, const struct principal *who, struct life_want *want, life_rows_fn fn, void *ctx,
              struct err *err) WARN_UNUSED;

struct webhook {
    char id[WEBHOOK_ID_LEN + 1]; /* "wh-" and 16 of [a-z0-9] */
    uint64_t tenant;
    json_t *config; /* {"name","url","secret","enabled","types":[...],"created_at":us}; checked */
};

/*
 * config: all members, or of a change those that are there; "created_at" is ours. An address that the configuration
 * doesn't let be reached is ERR_INVALID_ARGUMENT.
 */
int webhook_create(struct core *core, const struct actor *actor, const json_t *config,
                   const struct webhook **ret_webhook, struct err *err) WARN_UNUSED;
int webhook_set(struct core *core, const struct actor *actor, struct str id, const json_t *changes,
                const struct webhook **ret_webhook, struct err *err) WARN_UNUSED;
int webhook_remove(struct core *core, const struct actor *actor, struct str id, struct err *err) WARN_UNUSED;
const struct webhook *webhook_find(struct core *core, const struct principal *who, struct str id); /* or NULL */
void webhook_each(struct core *core, const struct principal *who, void (*fn)(void *ctx, const struct webhook *w),
                  void *ctx); /* by age */

/* ---- internal to src/sandbox ---- */

struct webhooks *webhooks_new(struct core *core);
int webhooks_load(struct core *core, struct err *err) WARN_UNUSED;
void webhooks_free(struct webhooks *all);
size_t webhooks_under_way(struct webhooks *all);

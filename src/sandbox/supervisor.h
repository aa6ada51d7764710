/* SPDX-License-Identifier: Apache-2.0 */
/* The client of coved: tagged requests over the worker's seqpacket socket (wire/supervisor.h). Internal to
 * src/sandbox. */
#pragma once

#include "base/err.h"
#include "sandbox/loop.h"
#include "wire/supervisor.h"

struct supervisor;

struct supervisor_ops {
    void (*on_ended)(void *ctx, const struct sup_ended *ended);
    void (*on_seen)(void *ctx, const struct sup_seen *seen); /* NULL: the last of a message was told */
    void (*on_egress)(void *ctx, int fd);                    /* yours: a new socket to cove-egress */
    /* coved died and was started again. Requests go on: those that can't be repeated have failed with ERR_UNAVAILABLE,
     * the others are asked again. */
    void (*on_restarted)(void *ctx);
    void (*on_lost)(void *ctx); /* once: coved is gone and won't return; all pending requests have failed */
};

int supervisor_new(struct loop *loop, int fd, const struct supervisor_ops *ops, void *ctx, struct supervisor **ret_sup,
                   struct err *err) WARN_UNUSED; /* takes fd, also when it fails */
void supervisor_free(struct supervisor *sup);    /* pending requests fail at once with ERR_UNAVAILABLE */

/*
 * Called once for each request: with the answer, or with NULL and the error: coved's own, ERR_DEADLINE_EXCEEDED (after
 * 30 s; what copies files has an hour), ERR_UNAVAILABLE.
 */
typedef void (*supervisor_fn)(void *ctx, const union sup_message *answer, const struct err *err);

/* Within supervisor_fn: the session socket of CREATED and ATTACHED, yours now; -1: none. */
int supervisor_take_fd(struct supervisor *sup) WARN_UNUSED;

/* Called for each SUP_LISTED, SUP_LAYER or SUP_VOLUME that comes before the answer, with the answer's ctx. */
typedef void (*supervisor_item_fn)(void *ctx, const union sup_message *item);

/* The head's type is set by the caller, the tag here. fn NULL: nobody wants to know. */
int supervisor_call(struct supervisor *sup, union sup_message *request, supervisor_fn fn, void *ctx,
                    struct err *err) WARN_UNUSED;

/*
 * The same with what SUP_IMAGE and SUP_DIFF need, a descriptor that goes along (-1: none; taken, also when this fails),
 * and what SUP_LIST, SUP_LAYERS and SUP_VOLUMES do, each (or NULL).
 */
int supervisor_call_with(struct supervisor *sup, union sup_message *request, int fd, supervisor_item_fn each,
                         supervisor_fn fn, void *ctx, struct err *err) WARN_UNUSED;

/* In a later turn: for whoever asked, and was refused at once. */
void supervisor_answer(struct supervisor *sup, supervisor_fn fn, void *ctx, const struct err *err);

/* coved is gone: what became of that which was asked of it, the next worker hears from the next coved. */
bool supervisor_is_lost(const struct supervisor *sup);
size_t supervisor_pending(const struct supervisor *sup); /* requests without an answer */

int supervisor_pause(struct supervisor *sup, const char *id, enum sup_pause_kind kind, supervisor_fn fn, void *ctx,
                     struct err *err) WARN_UNUSED;

/* KILL, ATTACH, USAGE, RESUME. */
int supervisor_call_id(struct supervisor *sup, enum sup_type type, const char *id, supervisor_fn fn, void *ctx,
                       struct err *err) WARN_UNUSED;

/*
 * LIST, and waits for the answer (at most 30 s). For start-up, before the loop runs; sandboxes that end while it waits
 * are reported as always.
 */
int supervisor_list(struct supervisor *sup, void (*each)(void *ctx, const struct sup_listed *listed), void *ctx,
                    struct err *err) WARN_UNUSED;

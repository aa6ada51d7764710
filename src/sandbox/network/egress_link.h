/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of cove-egress: tagged requests and unasked messages over the socket that coved gives to both
 * (wire/egress.h). Internal to src/sandbox.
 *
 *  1. A new socket replaces the one before. Requests that wait then, and when the socket is lost, fail with
 *     ERR_UNAVAILABLE.
 *  2. What is malformed, an answer to what was never asked, and an answer of another kind than asked for close the
 *     socket: nothing more is believed. An answer that comes after its request timed out is dropped.
 *  3. Callbacks come from the loop, never from within a call of the core.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "sandbox/loop.h"

struct egress_link;
struct egress_call;

struct egress_link_ops {
    void (*on_up)(void *ctx); /* there is a socket: requests can be made */
    void (*on_down)(void *ctx, const char *why);
    bool (*on_told)(void *ctx, const char *op, json_t *message); /* false: it makes no sense */
};

struct egress_link *egress_link_new(struct loop *loop, const struct egress_link_ops *ops, void *ctx);
void egress_link_free(struct egress_link *l); /* what waits fails at once; accepts NULL */

void egress_link_attach(struct egress_link *l, int fd); /* takes fd; on_up follows at once */
bool egress_link_is_up(const struct egress_link *l);

/* answer: borrowed; NULL with the error: egress's own, ERR_DEADLINE_EXCEEDED after EGRESS_ANSWER_MS,
 * ERR_UNAVAILABLE. */
typedef void (*egress_call_fn)(void *ctx, const json_t *answer, const struct err *err);

enum { EGRESS_ANSWER_MS = 5000 };

/* Steals the request, which has an "op" and gets its tag here. expects: the "op" of the answer, a literal. */
int egress_link_call(struct egress_link *l, json_t *request, const char *expects, egress_call_fn fn, void *ctx,
                     struct egress_call **ret_call, struct err *err) WARN_UNUSED;
void egress_call_wait(struct egress_call *call, uint64_t ms); /* from now, instead of EGRESS_ANSWER_MS */
void egress_call_cancel(struct egress_call *call);            /* no callback any more; NULL is fine */

/* A message without an answer. Steals it. Dropped when nobody is there. */
void egress_link_tell(struct egress_link *l, json_t *message);

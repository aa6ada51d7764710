/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Actions that wait until somebody allows or denies them, because the guard asks.
 *
 * Theory of operation
 *  1. Who asks for an action and can do so again later has a holder in its struct actor. When the guard asks, the
 *     action fails with ERR_HELD, and nothing was done. Once there is an answer the holder's again() begins the same
 *     action anew, in a later turn of the loop, and the gate (action.c) lets it pass, or says that it was denied.
 *     Without a holder the guard's question counts as a denial.
 *  2. An approval is good for one action of this holder: the same kind, on the same thing, with the same data. Whatever
 *     differs is a new question. The guard is asked again before an approved action passes: what it denies by then is
 *     denied.
 *  3. A hold ends by an answer, after core_config.hold_ms as a denial, with its sandbox, with its holder (the client
 *     left), or with the core. How it ended is recorded as guard.answered, behind guard.asked.
 *  4. What waits is bounded: HOLDS_MAX and HOLDS_BYTES of memory, of which each tenant has a share, HOLDS_OF_ONE of a
 *     sandbox or a volume. Beyond that, what would be asked is denied.
 */
#pragma once

#include "base/list.h"
#include "sandbox/core.h"
#include "sandbox/guard.h"
#include "sandbox/loop.h"

enum { HOLDS_MAX = 1000, HOLDS_OF_ONE = 32, HOLDS_BYTES = 64 << 20, HOLD_ID_LEN = 21, HOLD_MS = 300 * 1000 };

/* Embedded by who can begin its action again. */
struct holder {
    struct list holds; /* that wait, and approvals that were not used yet */
    size_t bytes;      /* what the owner keeps in memory while it waits */
    void (*again)(struct holder *h);
    struct loop_job goes_on; /* queued: it waits for something that is no question (exec_recovered()) */
};
void holder_init(struct holder *h, void (*again)(struct holder *h));
void holder_fini(struct holder *h); /* what still waits ends: nobody wants it any more */
bool holder_waits(struct holder *h);

/* ---- for who answers ---- */

struct hold_info {
    const char *id; /* 'h' and random characters: nobody answers a question of an earlier worker */
    struct guard_question question;
    struct guard_answer answer;
    bool is_analysed;    /* the analyser is asked, not people */
    usec_t asked, until; /* real time */
};

/* Oldest first, until fn returns false. fn must not answer. */
void hold_each(struct core *core, bool (*fn)(void *ctx, const struct hold_info *info), void *ctx);

const struct hold_info *hold_find_id(struct core *core, struct str id); /* NULL: it doesn't wait (any more) */

/* by: who answers, for the record. ERR_NOT_FOUND: nothing of that id waits (any more). */
int hold_answer(struct core *core, struct str id, bool is_allowed, const char *by, struct err *err) WARN_UNUSED;

/* ---- internal to src/sandbox ---- */

struct hold;

/*
 * The guard asks. 0: this was allowed, *ret_hold says by which hold; hold_use() when it is being done. -1: it waits
 * (ERR_HELD), or was denied, or can't wait, in which case *ret_why is a word for the record.
 */
int hold_ask(struct core *core, struct holder *holder, const struct guard_question *q,
             const struct guard_answer *answer, struct hold **ret_hold, const char **ret_why,
             struct err *err) WARN_UNUSED;
bool hold_was_answered(struct holder *holder, const struct guard_question *q); /* holder may be NULL */
uint64_t hold_use(struct hold *h);                                             /* the seq of guard.answered; frees */
/* The analyser's answer: its risk and reason for the record; GUARD_ASK: people are asked now. */
void hold_analysed(struct core *core, struct str id, enum guard_verdict verdict, enum guard_risk risk,
                   const char *reason);
void holds_end(struct core *core, const char *id, const char *how); /* all on this one; NULL: all there are */

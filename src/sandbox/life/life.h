/* SPDX-License-Identifier: Apache-2.0 */
/* How a sandbox ends, wakes up, and how both are reported. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* life.c */
struct ending {
    enum event_kind kind; /* the event that begins it; EVENT_KIND_UNKNOWN: seq says it */
    enum event_grade grade;
    struct str actor;
    const char *cause; /* a literal */
    bool fails;
    enum err_code code; /* of its failure; ERR_OK: ERR_UNAVAILABLE */
    const char *what;   /* for the event's data and the clients that wait; may be NULL */
    uint64_t seq;
};
void sandbox_end(struct sandbox *sb, const struct ending *ending);
/* It is not (any more) there: straight to SANDBOX_FAILED. */
void sandbox_failed(struct sandbox *sb, const struct err *err);
/* The supervisor says that it has ended. ctx: the core. */
void sandbox_on_ended(void *ctx, const struct sup_ended *ended);
void sandbox_forget(struct sandbox *sb); /* it has ended, and nobody finds it any more; takes the table's reference */
void sandbox_lost(struct sandbox *sb);   /* in the store only: at recovery */
void sandbox_kill_leftover(struct sandbox *sb);                  /* was stopping already when an earlier worker died */
void sandbox_abandon(struct sandbox *sb, const struct err *why); /* the core closes, the sandbox lives on */
struct session *sandbox_session_new(struct sandbox *sb);
struct session *sandbox_session_like(const struct sandbox *sb, const struct session_ops *ops, void *ctx);

/* deadline.c */
void sandbox_arm_end(struct sandbox *sb);
int deadline_check(const struct core *core, uint64_t timeout_ms, struct err *err) WARN_UNUSED; /* limits.timeout */

/* wake.c */
void wake_init(struct sandbox *sb);
void wake_later(struct sandbox *sb); /* its state has changed */
void wake_drop(struct sandbox *sb);

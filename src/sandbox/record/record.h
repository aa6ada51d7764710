/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of sandboxes: rows, figures, the log, and how all of it gets to the disk. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* rows.c: the store's row of a sandbox. Failures are counted and logged. */
int rows_insert(struct sandbox *sb, struct err *err) WARN_UNUSED;
int rows_replace(struct sandbox *sb, struct err *err) WARN_UNUSED;
void rows_state(struct sandbox *sb);
void rows_end_at(struct sandbox *sb);
void rows_ended(struct sandbox *sb);
void rows_network(struct sandbox *sb);
void rows_extra(struct sandbox *sb);
void rows_fill(struct sandbox *sb, const struct store_sandbox *row);

/* keeper.c: commits, suppressed events, checkpoints */
struct record_keeper *keeper_new(struct core *core);
void keeper_free(struct record_keeper *k);
void keeper_wrote(struct record_keeper *k);                              /* something waits in the store's batch */
void keeper_acts(struct record_keeper *k);                               /* the same, and it is an action */
int keeper_commit(struct record_keeper *k, struct err *err) WARN_UNUSED; /* now */
bool keeper_fails(const struct record_keeper *k);                        /* the last commit did */
bool keeper_lend(struct record_keeper *k); /* room for what frees room, for a second; false: none is left */
bool keeper_is_lending(const struct record_keeper *k);
void keeper_settle(struct record_keeper *k); /* what was committed soon survives a power cut */
void core_unrecorded(struct core *core, const struct err *err);

/* ends.c: sandbox_move() to ENDED or FAILED, which is written again when the store did not take it. */
uint64_t sandbox_move_to_end(struct sandbox *sb, enum sandbox_state to, const struct event_draft *event);
void ends_write(struct core *core); /* those that wait; for a timer of a second or so */
void ends_open(struct core *core);
void ends_close(struct core *core);

/* retention.c: forgets sandboxes that ended long ago, a little at a time */
struct retention *retention_new(struct core *core);
void retention_free(struct retention *r); /* accepts NULL */

/*
 * seen.c: what the kernel told coved about processes of sandboxes, as events. For struct supervisor_ops; ctx: struct
 * core. NULL: that was all of a message.
 */
void seen_record(void *ctx, const struct sup_seen *seen);
/*
 * An event that a sandbox can cause any number of; limit NULL: without one. Adds what it tells of to *told, for
 * event_limit_after(). Returns its seq, 0 when it is not in the log.
 */
uint64_t record_observed(struct sandbox *sb, const struct event_draft *draft, const struct event_limit *limit,
                         uint64_t *told);

/* history.c */
void history_look(struct sandbox *sb);
void history_stop(struct sandbox *sb);

/* usage.c */
void usage_start(struct sandbox *sb);
void usage_stop(struct sandbox *sb);
/* Something inside failed, perhaps for want of room: looks at once, lest there is room again at the next sample. */
void usage_suspect(struct sandbox *sb);
void usage_forget(struct sandbox *sb); /* its control group is gone: what another one counts begins at 0 */

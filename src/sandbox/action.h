/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way through. Whatever is done to a sandbox, by whichever API, begins here: it is authorised (the sandbox runs and the actor may),
 * the guard decides, and the action is recorded before it happens; what is observed of it afterwards is recorded with its seq as cause.
 *
 * Guard: decides allow or deny for a kind and its data; asking a person comes with another building block. Its answer is recorded.
 */
#pragma once

#include "base/buf.h"
#include "event/log.h"
#include "sandbox/sandbox.h"

/*
 * Begins an action. data: JSON object text ("{}" when there is nothing to say), bounded by the event log. On success *ret_seq is the
 * action's seq. -1: ERR_NOT_FOUND (ended), ERR_FAILED_PRECONDITION (not running), ERR_PERMISSION_DENIED (guard; recorded too), or what
 * keeps it from being recorded (ERR_RESOURCE_EXHAUSTED: the disk is full): an action without a record is not done, but for the kill.
 */
int action_begin(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                 uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/*
 * The same for what strangers may do as often as they like: those beyond the limit are done and counted together (log.suppressed). Of them
 * *ret_seq is 0, and nothing more should be recorded.
 */
int action_begin_limited(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                         const struct event_limit *limit, uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/* Records what came of it. Never fails for the caller: an event that can't be stored is counted and logged once. */
void action_observe(struct sandbox *sb, uint64_t cause, enum event_kind kind, enum event_grade grade, struct str data);

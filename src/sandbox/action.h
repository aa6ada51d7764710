/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one gate. Every request on a sandbox, a volume or the service itself passes it before it is carried out,
 * whichever API it came by: it is authorised (the sandbox runs, the service doesn't stop), the guard decides (guard.h),
 * and the action is recorded. What is observed later is recorded with the action's seq as its cause.
 *
 * Its caller must not have changed anything yet: an action that waits for an answer (ERR_HELD, hold.h) is begun again
 * later.
 */
#pragma once

#include "base/buf.h"
#include "event/log.h"
#include "sandbox/sandbox.h"

#define SERVICE_LOG_ID                                                                                                 \
    "service" /* the log of the service itself: templates, secrets, the pool; never the id of a sandbox or volume */
enum { LOG_KEEP = 10000 }; /* at least this many of the last events of a log that isn't a sandbox's are kept */

/*
 * Begins an action. data: JSON object text ("{}" when there is nothing to say), bounded by the event log. On success
 * *ret_seq is the action's seq. -1: ERR_NOT_FOUND (ended), ERR_FAILED_PRECONDITION (not running), ERR_PERMISSION_DENIED
 * (guard; recorded too), or what keeps it from being recorded (ERR_RESOURCE_EXHAUSTED: the disk is full): an action
 * without a record is not done, but for the kill.
 */
int action_begin(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                 uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/*
 * The same for what strangers may do as often as they like: beyond the limit, actions are carried out and only counted
 * (log.suppressed). Then *ret_seq is 0, and nothing more should be recorded.
 */
int action_begin_limited(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                         const struct event_limit *limit, uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/* The same in the log of this id, whatever state its subject is in. SERVICE_LOG_ID: that of the actor's tenant. */
int action_on(struct core *core, const char *id, const struct actor *actor, enum event_kind kind, struct str data,
              uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/*
 * The two halves, for actions that make the subject of the record: the guard is asked before it exists, and about the
 * service. What passed is recorded with action_record() when it begins.
 */
int action_allow(struct core *core, const struct actor *actor, enum event_kind kind, struct str data,
                 struct err *err) WARN_UNUSED;
int action_record(struct core *core, const char *id, const struct actor *actor, enum event_kind kind, struct str data,
                  uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/* Records its result. Never fails for the caller: an event that can't be stored is counted and logged once. */
void action_observe(struct sandbox *sb, uint64_t cause, enum event_kind kind, enum event_grade grade, struct str data);

/* The same as seen by the host, in the log of this id. cause 0: none; actor NULL: nobody asked. Returns its seq, 0: it
 * could not be stored. */
uint64_t action_note(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                     struct str data);
/* The same of what somebody can cause without end: floods are counted. */
void action_note_limited(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                         struct str data);
struct guard_question;
/* The same of what the guard was asked about. */
uint64_t action_note_question(struct core *core, const struct guard_question *q, const char *actor, uint64_t cause,
                              enum event_kind kind, struct str data);
/* In the log of what this tenant does: this action had no result. action_end(): if r is below 0; returns it. */
void action_fruitless(struct core *core, uint64_t tenant, uint64_t cause, enum event_kind action,
                      const struct err *why);
static inline int action_end(struct core *core, const struct actor *actor, uint64_t cause, enum event_kind action,
                             int r, const struct err *why)
{
    if (r < 0)
        action_fruitless(core, actor->who.tenant, cause, action, why);
    return r;
}

/* An action that concerns no sandbox and no volume, in tenant_log(); and its end, when what came of it is in the
 * store. */
int action_service(struct core *core, const struct actor *actor, enum event_kind kind, struct event_data *d,
                   uint64_t *ret_seq, struct err *err) WARN_UNUSED;
int action_stored(struct core *core, const struct actor *actor, uint64_t cause, enum event_kind kind, int r,
                  struct err *err) WARN_UNUSED;

void action_describe_error(struct event_data *d, const struct err *err); /* "code", "message" */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of an action on what is no sandbox - a volume, or the service itself: guard, record, do, record. Its log stands under an id of its own; of one that goes on,
 * the last RECORD_KEEP events are kept, at least. Internal to src/sandbox.
 */
#pragma once

#include "event/event.h"
#include "sandbox/core.h"

enum { RECORD_KEEP = 10000 };

/* ERR_PERMISSION_DENIED: a rule forbids it. An action that can't be recorded is not done. ret_seq: the cause of what is observed then. */
int record_act(struct core *core, const char *id, const struct actor *actor, enum event_kind kind, struct str data,
               uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/* cause 0: none. actor NULL: nobody asked. */
void record_observe(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                    struct str data);

/* The same of what somebody can cause without end: floods are counted. */
void record_refusal(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                    struct str data);

void record_error(struct event_data *d, const struct err *err); /* "code", "message" */

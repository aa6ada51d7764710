/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of the service itself: what is done to templates, secrets and the pool, who did it, what came of it. It goes on for as long as the service's state is there; the last
 * RECORD_KEEP events stay.
 */
#pragma once

#include "event/event.h"
#include "sandbox/core.h"

#define SERVICE_LOG_ID "service" /* in the event log; no sandbox's and no volume's id */

/* As record_act(). What it did not come to is told by service_refused(). */
int service_act(struct core *core, const struct actor *actor, enum event_kind kind, struct str data, uint64_t *ret_seq,
                struct err *err) WARN_UNUSED;
void service_observe(struct core *core, uint64_t cause, enum event_kind kind, struct str data);
void service_refused(struct core *core, uint64_t cause, enum event_kind action, const struct err *why);

/* Internal to src/sandbox. The worker has begun; cove-egress says that a secret was changed. False: what it says makes no sense. */
void service_log_started(struct core *core);
bool service_log_secret(struct core *core, const char *name, const char *what, int64_t uid);

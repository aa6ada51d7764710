/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's part in the life of the core and of a sandbox: its rules, the analyser, who is stuck. Not for façades. */
#pragma once

#include "event/log.h"
#include "sandbox/guard.h"

struct guards;
struct guards *guards_new(struct core *core);
void guards_free(struct guards *all);
const struct rules_analyser *guard_analyser(struct core *core); /* its url NULL: none */
enum guard_stuck guard_stuck_of(const struct sandbox *sb);
int guard_checkpoint_of(const struct sandbox *sb); /* CHECKPOINT_UNSET: no rules say anything */
bool guard_asks_hosts(const struct sandbox *sb);
void guard_forget_tenant(struct core *core, uint64_t tenant);
void guard_describe(struct event_data *d, const struct guard_answer *answer); /* "rule", and what it says */
void guard_fill(struct sandbox *sb, const json_t *json);                      /* its rules, from its row; NULL: none */
void guard_inherit(struct sandbox *sb, const struct sandbox *from);

/* analyser.c: somebody's own judge, asked over HTTP by cove-egress. Its answer is hold_analysed(). */
void analyser_ask(struct core *core, const struct hold_info *info, uint64_t seq);

/* stuck.c: the same again and again */
void stuck_action(struct core *core, const struct event_draft *action, uint64_t seq);
void stuck_result(struct sandbox *sb, const struct event_draft *result);
void stuck_free(struct sandbox *sb);

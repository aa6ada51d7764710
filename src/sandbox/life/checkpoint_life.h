/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints in the life of a sandbox. Not for façades. */
#pragma once

#include "event/log.h"
#include "sandbox/guard.h"
#include "sandbox/life/checkpoint.h"

/* What is done, and what came of it. */
void checkpoint_action(struct sandbox *sb, enum event_kind kind, enum guard_risk risk, uint64_t seq);
void checkpoint_result(struct sandbox *sb, enum event_kind kind, uint64_t seq);
void checkpoint_each(struct core *core, void (*fn)(void *ctx, const char *layer), void *ctx); /* what is needed */
void checkpoint_drop(struct sandbox *sb); /* all of them: it has ended */
void checkpoint_free(struct sandbox *sb);
json_t *checkpoint_row(const struct sandbox *sb); /* NULL: there is nothing to remember */
void checkpoint_fill(struct sandbox *sb, const json_t *row);

/* The files that it is to be started on, when there are such (start.c). */
const char *rewind_layer(const struct sandbox *sb); /* NULL: those that it has */
void rewind_done(struct sandbox *sb);               /* they are there */
void rewind_forget(struct sandbox *sb);             /* it is not to be any more */

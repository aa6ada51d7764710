/* SPDX-License-Identifier: Apache-2.0 */
/* New sandboxes, and what runs before they are handed over. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* make.c: objects of new sandboxes that have no row yet */
struct sandbox *make_sandbox(struct core *core, const struct template *t, const char *alias, const char *tier,
                             const struct sandbox_spec *spec);
struct sandbox *make_fork(const struct sandbox *of, const char *layer,
                          uint64_t timeout_ms);                 /* 0: never ends by itself */
void make_launch(struct sandbox *sb, const struct template *t); /* the template's commands */
/* What the asker alone decides about; the rest of a sandbox can be there before anybody asks. */
void make_own(struct sandbox *sb, const struct template *t, const char *alias, const struct sandbox_spec *spec);
void make_describe(const struct sandbox *sb, struct event_data *d);

/* create.c: gate, row, action, network and coved for a new object; it is gone when this fails. fork_of: NULL or an id,
 * for the record */
int create_begin(struct sandbox *sb, const struct actor *actor, const char *fork_of, sandbox_fn done, void *ctx,
                 struct err *err) WARN_UNUSED;
void create_message(const struct sandbox *sb, union sup_message *ret_message);

/* launch.c */
void launch_begin(struct sandbox *sb); /* START_COMMAND */
void launch_cancel(struct sandbox *sb);

/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that are ready before anybody asks. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* spare.c */
struct spares *spares_new(struct core *core);
int spares_load(struct core *core, struct err *err) WARN_UNUSED;
void spares_free(struct spares *all);
/* One that is ready and fits, out of its stock; NULL: none. t stays valid. */
struct sandbox *spare_take(struct core *core, const struct template *t, const char *tier,
                           const struct sandbox_spec *spec);
void spare_gone(struct sandbox *sb);
void spares_look(struct core *core);  /* soon: templates have changed */
void spares_short(struct core *core); /* there is no room */

/* SPDX-License-Identifier: Apache-2.0 */
/* What sandboxes can be made from, for façades. The registry is the core's. */
#pragma once

#include "sandbox/core.h"
#include "template/template.h"

/* By id or alias: template_resolve(). Valid until control returns to the loop. */
int core_template_find(struct core *core, struct str ref, const struct template **ret_template,
                       struct err *err) WARN_UNUSED;

/* By id, until fn returns false. */
void core_templates_each(struct core *core, bool (*fn)(void *ctx, const struct template *t), void *ctx);

/* What a sandbox of it gets when its request says nothing. */
uint32_t core_template_cpu_milli(const struct core *core, const struct template *t);
uint64_t core_template_memory_bytes(const struct core *core, const struct template *t);
uint64_t core_template_disk_bytes(const struct core *core, const struct template *t); /* 0: no limit */

/* The registry itself, for those who build (template/builds.h). What they changed is in the store's batch: one of these follows. */
struct template_registry *core_templates(const struct core *core);
void core_templates_changed(struct core *core);                            /* it is committed soon */
int core_templates_commit(struct core *core, struct err *err) WARN_UNUSED; /* now; undone when it fails */

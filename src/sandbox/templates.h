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

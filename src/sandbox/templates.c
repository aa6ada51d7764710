/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/templates.h"
#include "sandbox/internal.h"

int core_template_find(struct core *core, struct str ref, const struct template **ret_template, struct err *err)
{
    return template_resolve(core->templates, ref, ret_template, NULL, err);
}

void core_templates_each(struct core *core, bool (*fn)(void *ctx, const struct template *t), void *ctx)
{
    template_each(core->templates, fn, ctx);
}

uint32_t core_template_cpu_milli(const struct core *core, const struct template *t)
{
    return t->cpu_milli ? t->cpu_milli : core->config.default_cpu_milli;
}

uint64_t core_template_memory_bytes(const struct core *core, const struct template *t)
{
    return t->memory_bytes ? t->memory_bytes : core->config.default_memory_bytes;
}

struct template_registry *core_templates(const struct core *core)
{
    return core->templates;
}

void core_templates_changed(struct core *core)
{
    keeper_wrote(core->keeper);
}

int core_templates_commit(struct core *core, struct err *err)
{
    return keeper_commit(core->keeper, err);
}

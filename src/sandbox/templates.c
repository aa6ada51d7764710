/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/templates.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/internal.h"
#include "sandbox/layers.h"

#include <stdio.h>

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

uint64_t core_template_disk_bytes(const struct core *core, const struct template *t)
{
    return t->disk_bytes ? t->disk_bytes : core->config.default_disk_bytes;
}

struct users {
    const char *template_id, *layer; /* NULL: any */
    size_t n;
    char names[4 * (ID_SANDBOX_LEN + 2) + 1];
};

static bool note_user(void *ctx, struct sandbox *sb)
{
    struct users *u = ctx;
    if (strcmp(sb->info.template_id, u->template_id) != 0 || (u->layer && strcmp(sb->layer, u->layer) != 0))
        return true;
    if (u->n++ < 4) {
        size_t at = strlen(u->names);
        (void)snprintf(u->names + at, sizeof(u->names) - at, "%s%s", at ? ", " : "", sb->info.id);
    }
    return true;
}

int core_template_remove(struct core *core, const struct actor *actor, struct str ref, struct err *err)
{
    const struct template *t;
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service stops");
    if (template_resolve(core->templates, ref, &t, NULL, err) < 0)
        return -1;
    bool is_one = template_is_one_of_several(core->templates, ref);
    struct users u = {.template_id = t->id, .layer = is_one ? t->layer : NULL};
    sandbox_each(core, note_user, &u);
    if (u.n > 4)
        return err_set(err, ERR_FAILED_PRECONDITION, "%zu sandboxes were made from it and are there: %s, ...", u.n,
                       u.names);
    if (u.n)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandboxes were made from it and are there: %s", u.names);
    AUTO_FREE char *id = mem_strdup(t->id);
    int r = is_one ? template_remove_tag(core->templates, ref, err) : template_remove(core->templates, ref, err);
    if (r < 0 || keeper_commit(core->keeper, err) < 0)
        return -1;
    fault_point("core.template.removed");
    spares_look(core);
    log_info("template %s%s was removed by %s", id, is_one ? ", one of its snapshots," : "", actor->name);
    return 0;
}

struct template_registry *core_templates(const struct core *core)
{
    return core->templates;
}

void core_templates_changed(struct core *core)
{
    keeper_wrote(core->keeper);
    spares_look(core);
}

int core_templates_commit(struct core *core, struct err *err)
{
    spares_look(core);
    return keeper_commit(core->keeper, err);
}

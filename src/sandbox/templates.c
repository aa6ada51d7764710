/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/templates.h"
#include "base/fault.h"
#include "base/mem.h"
#include "sandbox/action.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/start/spare.h"
#include "wire/tiers.h"

#include <stdlib.h>

int core_template_find(struct core *core, uint64_t view, struct str ref, const struct template **ret_template,
                       struct err *err)
{
    return template_resolve(core->templates, view, ref, ret_template, NULL, err);
}

void core_templates_each(struct core *core, uint64_t view, bool (*fn)(void *ctx, const struct template *t), void *ctx)
{
    template_each(core->templates, view, fn, ctx);
}

struct snapshot_list {
    bool (*fits)(const void *ctx, const struct template *t);
    const void *ctx;
    const struct template **found;
    size_t n, cap;
};

static bool snapshots_collect(void *ctx, const struct template *t)
{
    struct snapshot_list *all = ctx;
    if (!t->is_snapshot || !all->fits(all->ctx, t))
        return true;
    if (all->n == all->cap) {
        all->cap = MAX(2 * all->cap, (size_t)64);
        all->found = mem_realloc(all->found, all->cap * sizeof(struct template *));
    }
    all->found[all->n++] = t;
    return true;
}

const char *template_called(const struct template *t)
{
    return t->ref ? t->ref : t->id;
}

int template_order(const struct template *a, usec_t built, const char *ref)
{
    return a->built != built ? (a->built > built ? -1 : 1) : strcmp(template_called(a), ref);
}

static int snapshots_compare(const void *a, const void *b)
{
    const struct template *x = *(const struct template *const *)a, *y = *(const struct template *const *)b;
    return template_order(x, y->built, template_called(y));
}

size_t core_snapshots(struct core *core, uint64_t view, bool (*fits)(const void *ctx, const struct template *t),
                      const void *ctx, const struct template ***ret_found)
{
    struct snapshot_list all = {fits, ctx, NULL, 0, 0};
    size_t n = 0;
    core_templates_each(core, view, snapshots_collect, &all);
    if (all.n)
        qsort(all.found, all.n, sizeof(struct template *), snapshots_compare);
    for (size_t i = 0; i < all.n; i++)
        if (!n || all.found[i] != all.found[n - 1])
            all.found[n++] = all.found[i];
    *ret_found = all.found;
    return n;
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

const char *core_tier(const struct core *core, const struct template *t, struct str wanted, struct err *err)
{
    const struct tier_list *list = core->config.engine.tiers;
    struct err local = {0}, *e = err ? err : &local;
    size_t at = 0, least = 0;
    if (!list)
        return "container";
    while (at + 1 < list->n && (list->at[at].missing[0] || list->at[at].named))
        at++;
    const char *name = t->tier                            ? t->tier
                       : core->config.engine.default_tier ? core->config.engine.default_tier
                                                          : list->at[at].name;
    if (tier_list_choose(list, wanted.p ? wanted : str_of(name), &at, e) < 0)
        return NULL;
    if (t->tier && tier_list_find(list, str_of(t->tier), &least) && at < least) {
        (void)err_set(e, ERR_FAILED_PRECONDITION, "template %s requires tier %s or a stronger one", t->id, t->tier);
        return NULL;
    }
    return list->at[at].name;
}

/* ---- actions ---- */

static void put_tags(struct event_data *d, const struct str *tags, size_t n)
{
    AUTO_BUF struct buf b = BUF_INIT(EVENT_DATA_MAX);
    buf_append_char(&b, '[');
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_append_char(&b, ',');
        buf_append_json_string(&b, tags[i]);
    }
    buf_append_char(&b, ']');
    event_data_json(d, "tags", buf_error(&b) ? STR("[]") : buf_str(&b));
}

int core_template_request(struct core *core, const struct actor *actor, const struct template_request *request,
                          const struct template_build **ret_build, struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("name", request->name));
    if (request->n_tags)
        put_tags(&d, request->tags, request->n_tags);
    if (action_on(core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_REQUEST, event_data_end(&d), &seq, err) < 0)
        return -1;
    struct template_request own = *request;
    own.tenant = actor->who.tenant;
    int r = quota_check_template(core, own.tenant, template_count_beside(core->templates, own.tenant, own.name), err);
    return action_end(core, actor, seq, EVENT_TEMPLATE_REQUEST,
                      r < 0 ? r : template_request(core->templates, &own, ret_build, err), err);
}

int core_template_tag(struct core *core, const struct actor *actor, struct str target, const struct str *tags, size_t n,
                      const char **ret_build, struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", target));
    put_tags(&d, tags, n);
    if (action_on(core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_TAG, event_data_end(&d), &seq, err) < 0)
        return -1;
    return action_end(core, actor, seq, EVENT_TEMPLATE_TAG,
                      template_tags_add(core->templates, actor->who.view, target, tags, n, ret_build, err), err);
}

int core_template_untag(struct core *core, const struct actor *actor, struct str name, const struct str *tags, size_t n,
                        struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", name));
    put_tags(&d, tags, n);
    if (action_on(core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_UNTAG, event_data_end(&d), &seq, err) < 0)
        return -1;
    return action_end(core, actor, seq, EVENT_TEMPLATE_UNTAG,
                      template_tags_remove(core->templates, actor->who.view, name, tags, n, err), err);
}

int core_template_publish(struct core *core, const struct actor *actor, struct str ref, bool is_public, struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", ref), DATA_BOOL("public", is_public));
    if (action_on(core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_PUBLISH, event_data_end(&d), &seq, err) < 0)
        return -1;
    return action_end(core, actor, seq, EVENT_TEMPLATE_PUBLISH,
                      template_publish(core->templates, actor->who.view, ref, is_public, err), err);
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

/* All of it, when ref has no tag: then "default" need not be one. Without any tag it can't be in use. */
static int templates_drop(struct core *core, uint64_t view, struct str ref, struct err *err)
{
    const struct template *t;
    struct template_info info;
    struct users u = {0};
    AUTO_FREE char *tagged = NULL;
    bool is_one = template_is_one_of_several(core->templates, view, ref);
    if (str_find_char(ref, ':') < 0 && template_info_find(core->templates, view, ref, &info, err) == 0 && info.n_tags)
        tagged = mem_printf("%s:%s", info.id, info.tags[0].tag);
    if (template_resolve(core->templates, view, tagged ? str_of(tagged) : ref, &t, NULL, err) == 0) {
        u = (struct users){.template_id = t->id, .layer = is_one ? t->layer : NULL};
        sandbox_each(core, note_user, &u);
    } else if (tagged || str_find_char(ref, ':') >= 0) {
        return -1;
    }
    if (u.n > 4)
        return err_set(err, ERR_FAILED_PRECONDITION, "%zu sandboxes still use it: %s, ...", u.n, u.names);
    if (u.n)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandboxes still use it: %s", u.names);
    return is_one ? template_remove_tag(core->templates, view, ref, err)
                  : template_remove(core->templates, view, ref, err);
}

int core_template_remove(struct core *core, const struct actor *actor, struct str ref, struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", ref));
    if (action_on(core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_REMOVE, event_data_end(&d), &seq, err) < 0 ||
        action_end(core, actor, seq, EVENT_TEMPLATE_REMOVE, templates_drop(core, actor->who.view, ref, err), err) < 0 ||
        keeper_commit(core->keeper, err) < 0)
        return -1;
    fault_point("core.template.removed");
    spares_look(core);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of templates, and the changes that need no build. */
#include "base/mem.h"
#include "template/internal.h"

static void tags_fill(struct template_registry *r, struct template_entry *e, struct template_info *ret_info)
{
    const struct build *shown = entry_shown(e);
    struct template_info info = {.tenant = e->tenant,
                                 .id = e->id,
                                 .name = e->name[0] ? e->full : NULL,
                                 .is_public = e->is_public,
                                 .is_snapshot = true,
                                 .created = e->created,
                                 .updated = e->updated,
                                 .n_builds = e->n_builds,
                                 .build = shown ? &shown->b : NULL,
                                 .n_tags = e->n_tags};
    LIST_FOREACH (struct build, b, &e->builds, node)
        info.is_snapshot &= b->b.is_snapshot;
    r->shown = mem_realloc(r->shown, (e->n_tags + 1) * sizeof(*r->shown));
    for (size_t i = 0; i < e->n_tags; i++)
        r->shown[i] = (struct template_tag){e->tags[i].tag, e->tags[i].build->b.id, e->tags[i].created};
    info.tags = r->shown;
    registry_use(r, e->id, &info);
    *ret_info = info;
}

static void fill_file(struct template_registry *r, const struct template *t, struct template_info *ret_info)
{
    *ret_info = (struct template_info){.id = t->id,
                                       .name = t->n_aliases ? t->aliases[0] : NULL,
                                       .file = t,
                                       .created = t->built,
                                       .updated = t->built,
                                       .n_builds = 1};
    registry_use(r, t->id, ret_info);
}

int template_info_find(struct template_registry *r, uint64_t view, struct str ref, struct template_info *ret_info,
                       struct err *err)
{
    struct template_name name;
    registry_refresh(r);
    bool is_name = template_name_parse(ref, &name, err) == 0;
    struct template_entry *e = is_name ? built_find(r, view, &name, false) : NULL;
    if (e) {
        tags_fill(r, e, ret_info);
        return 0;
    }
    const struct template *file = ref.n && !str_has_nul(ref) ? registry_file(r, ref) : NULL;
    if (!file)
        return is_name ? err_set(err, ERR_NOT_FOUND, "template '%.*s' not found", STR_ARG(ref)) : -1;
    fill_file(r, file, ret_info);
    return 0;
}

void template_info_each(struct template_registry *r, uint64_t view,
                        bool (*fn)(void *ctx, const struct template_info *info), void *ctx)
{
    AUTO_FREE struct template_entry **all = NULL;
    struct template_info info;
    registry_refresh(r);
    size_t n = registry_entries(r, &all), at = 0;
    for (size_t i = 0; i <= r->n; i++) {
        for (; at < n && (i == r->n || strcmp(all[at]->id, r->list[i]->id) < 0); at++) {
            if (!entry_is_shown(all[at], view))
                continue;
            tags_fill(r, all[at], &info);
            if (!fn(ctx, &info))
                return;
        }
        if (i == r->n)
            return;
        fill_file(r, r->list[i], &info);
        if (!fn(ctx, &info))
            return;
    }
}

/* One that can be changed. */
static int find_entry(struct template_registry *r, uint64_t view, struct str ref, struct template_name *ret_name,
                      struct template_entry **ret_entry, struct err *err)
{
    if (template_name_parse(ref, ret_name, err) < 0)
        return -1;
    registry_refresh(r);
    *ret_entry = built_find(r, view, ret_name, true);
    if (*ret_entry)
        return 0;
    if (registry_file(r, ref))
        return err_set(err, ERR_FAILED_PRECONDITION, "template '%.*s' comes from a file and can't be changed by this",
                       STR_ARG(ref));
    return err_set(err, ERR_NOT_FOUND, "template '%.*s' not found", STR_ARG(ref));
}

int template_tags_add(struct template_registry *r, uint64_t view, struct str target, const struct str *tags, size_t n,
                      const char **ret_build, struct err *err)
{
    struct template_name name;
    char tag[TEMPLATE_NAME_MAX + 1];
    struct template_entry *e;
    if (n == 0 || n > TEMPLATE_TAGS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "between 1 and %d tags can be assigned at a time", TEMPLATE_TAGS_MAX);
    for (size_t i = 0; i < n; i++)
        if (template_tag_parse(tags[i], tag, err) < 0)
            return -1;
    if (find_entry(r, view, target, &name, &e, err) < 0)
        return -1;
    const struct tag *from = entry_tag(e, name.tag);
    if (!from)
        return err_set(err, ERR_NOT_FOUND, "Template '%.*s' with tag '%s' not found", STR_ARG(target), name.tag);
    struct build *b = from->build;
    for (size_t i = 0; i < n; i++)
        if (template_tag_parse(tags[i], tag, err) < 0 || entry_set_tag(r, e, tag, b, err) < 0)
            return -1;
    *ret_build = b->b.id;
    return 0;
}

int template_tags_remove(struct template_registry *r, uint64_t view, struct str name, const struct str *tags, size_t n,
                         struct err *err)
{
    struct template_name parsed;
    char tag[TEMPLATE_NAME_MAX + 1];
    struct template_entry *e;
    if (n == 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "At least one tag is required");
    for (size_t i = 0; i < n; i++) {
        if (template_tag_parse(tags[i], tag, err) < 0)
            return -1;
        if (strcmp(tag, TEMPLATE_TAG_DEFAULT) == 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "Cannot delete the '%s' tag", tag);
    }
    if (find_entry(r, view, name, &parsed, &e, err) < 0)
        return -1;
    if (parsed.has_tag)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "Template name should not contain a tag, use the 'tags' field instead");
    for (size_t i = 0; i < n; i++)
        if (template_tag_parse(tags[i], tag, err) < 0 || entry_drop_tag(r, e, tag, err) < 0)
            return -1;
    return entry_prune(r, e, err);
}

int template_publish(struct template_registry *r, uint64_t view, struct str ref, bool is_public, struct err *err)
{
    struct template_name name;
    struct template_entry *e;
    if (find_entry(r, view, ref, &name, &e, err) < 0)
        return -1;
    e->is_public = is_public;
    e->updated = clock_real();
    return entry_store(r, e, err);
}

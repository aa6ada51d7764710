/* SPDX-License-Identifier: Apache-2.0 */
/* Built templates and snapshots in memory, step by step with their rows. */
#include "base/buf.h"
#include "base/mem.h"
#include "store/template_rows.h"
#include "template/internal.h"

const char *keep(struct arena *a, const char *text)
{
    return text && *text ? arena_strdup(a, text) : NULL;
}

/* ---- memory ---- */

/* Names of one tenant. */
static struct template_entry *built_named(const struct template_registry *r, uint64_t tenant,
                                          const struct template_name *name, bool is_public)
{
    struct template_entry *loose = NULL;
    for (struct template_entry *e = map_get(&r->by_name, str_of(name->name)); e; e = e->same_name) {
        if (e->tenant != tenant || (is_public && !e->is_public))
            continue;
        if (strcmp(e->space, name->space) == 0)
            return e;
        if (!e->space[0] || !name->space[0])
            loose = e;
    }
    return loose;
}

struct template_entry *built_find(struct template_registry *r, uint64_t view, const struct template_name *name,
                                  bool own)
{
    struct template_entry *e = name->space[0] ? NULL : map_get(&r->by_id, str_of(name->name));
    if (e && (view_has(view, e->tenant) || (!own && e->is_public)))
        return e;
    e = built_named(r, view_home(view), name, false);
    return e || own ? e : built_named(r, TENANT_DEFAULT, name, true);
}

bool entry_is_shown(const struct template_entry *e, uint64_t view)
{
    return view_has(view, e->tenant) || (e->is_public && e->tenant == TENANT_DEFAULT);
}

static struct template_entry *entry_new(struct template_registry *r, const char *id, struct str full)
{
    struct template_entry *e = mem_new(struct template_entry);
    ssize_t slash = str_find_char(full, '/');
    struct str space = slash < 0 ? STR("") : str_n(full.p, (size_t)slash), name = str_sub(full, (size_t)(slash + 1));
    list_init(&e->builds);
    assert(strlen(id) < sizeof(e->id) && space.n < sizeof(e->space) && name.n < sizeof(e->name));
    memcpy(e->id, id, strlen(id));
    memcpy(e->space, space.p, space.n);
    memcpy(e->name, name.p, name.n);
    memcpy(e->full, full.p, full.n);
    (void)map_put(&r->by_id, str_of(e->id), e);
    if (e->name[0])
        e->same_name = map_put(&r->by_name, str_of(e->name), e);
    return e;
}

struct template_entry *built_new(struct template_registry *r, uint64_t tenant, const struct template_name *name,
                                 usec_t now)
{
    char id[TEMPLATE_ID_LEN + 1], full[2 * TEMPLATE_NAME_MAX + 2] = "";
    id_token(id, TEMPLATE_ID_LEN);
    size_t n = strlen(name->space);
    memcpy(full, name->space, n);
    if (n)
        full[n++] = '/';
    memcpy(full + n, name->name, strlen(name->name));
    struct template_entry *e = entry_new(r, id, str_of(full));
    e->tenant = tenant;
    e->created = e->updated = now;
    return e;
}

struct build *build_new(struct template_entry *e, const char *id, struct template_registry *r)
{
    struct build *b = mem_new(struct build);
    b->entry = e;
    b->b.id = arena_strdup(&b->arena, id);
    b->b.template_id = e->id;
    list_append(&e->builds, &b->node);
    e->n_builds++;
    (void)map_put(&r->builds, str_of(id), b);
    return b;
}

void build_free(struct template_registry *r, struct build *b)
{
    (void)map_del(&r->builds, str_of(b->b.id));
    list_remove(&b->node);
    b->entry->n_builds--;
    b->entry->bytes -= b->bytes;
    mem_free(b->wanted);
    arena_fini(&b->alias_arena);
    arena_fini(&b->arena);
    mem_free(b);
}

void entry_free(struct template_registry *r, struct template_entry *e)
{
    LIST_FOREACH (struct build, b, &e->builds, node)
        build_free(r, b);
    (void)map_del(&r->by_id, str_of(e->id));
    if (e->name[0]) {
        struct template_entry *first = map_get(&r->by_name, str_of(e->name));
        if (first == e) {
            (void)map_del(&r->by_name, str_of(e->name));
            if (e->same_name)
                (void)map_put(&r->by_name, str_of(e->name), e->same_name);
        } else {
            while (first && first->same_name != e)
                first = first->same_name;
            if (first)
                first->same_name = e->same_name;
        }
    }
    MEM_FREE(e->tags, e);
}

void built_clear(struct template_registry *r)
{
    for (struct template_entry *e; (e = map_any(&r->by_id));)
        entry_free(r, e);
    map_fini(&r->by_id);
    map_fini(&r->by_name);
    map_fini(&r->builds);
    r->by_id = r->by_name = r->builds = MAP_INIT;
}

struct tag *entry_tag(const struct template_entry *e, const char *tag)
{
    for (size_t i = 0; i < e->n_tags; i++)
        if (strcmp(e->tags[i].tag, tag) == 0)
            return &e->tags[i];
    return NULL;
}

struct build *entry_shown(struct template_entry *e)
{
    struct tag *tag = entry_tag(e, TEMPLATE_TAG_DEFAULT);
    struct build *shown = NULL;
    if (tag)
        return tag->build;
    LIST_FOREACH (struct build, b, &e->builds, node)
        if (!shown || b->b.status == TEMPLATE_READY || shown->b.status != TEMPLATE_READY)
            shown = b;
    return shown;
}

/* Its name with each tag that leads to it, as a file would list them. */
void build_view(struct build *b)
{
    const struct template_entry *e = b->entry;
    struct template *t = &b->t;
    arena_fini(&b->alias_arena);
    t->id = e->id;
    t->build_id = b->b.id;
    t->cpu_milli = b->b.cpu_milli;
    t->memory_bytes = b->b.memory_bytes;
    t->disk_bytes = b->b.disk_bytes;
    t->size_bytes = b->b.size_bytes;
    t->built = b->b.finished;
    t->is_snapshot = b->b.is_snapshot;
    t->name = e->name[0] ? e->full : NULL;
    t->n_aliases = 0;
    t->aliases = NULL;
    t->ref = NULL;
    const char **aliases = arena_alloc(&b->alias_arena, (b->n_tags + 1) * sizeof(*aliases));
    const char *first = NULL;
    for (size_t i = 0; i < e->n_tags; i++) {
        if (e->tags[i].build != b)
            continue;
        const char *tag = e->tags[i].tag;
        first = first ? first : tag;
        if (e->name[0] && t->n_aliases < b->n_tags)
            aliases[t->n_aliases++] =
                strcmp(tag, TEMPLATE_TAG_DEFAULT) == 0 ? e->full : arena_printf(&b->alias_arena, "%s:%s", e->full, tag);
    }
    t->aliases = aliases;
    if (b->b.is_snapshot) {
        const char *name = e->name[0] ? e->full : e->id;
        t->ref = arena_printf(&b->alias_arena, "%s:%s", name, first ? first : TEMPLATE_TAG_DEFAULT);
    }
    b->b.made = b->b.status == TEMPLATE_READY ? t : NULL;
}

void build_take(struct build *b, const struct template_result *result)
{
    struct template *t = &b->t;
    t->layer = keep(&b->arena, result->layer);
    t->start_cmd = keep(&b->arena, result->start_cmd);
    t->ready_cmd = keep(&b->arena, result->ready_cmd);
    t->workdir = keep(&b->arena, result->workdir);
    t->user = keep(&b->arena, result->user);
    t->image = keep(&b->arena, result->image);
    t->tier = keep(&b->arena, result->tier);
    t->has_memory = result->has_memory;
    b->b.size_bytes = result->size_bytes;
    const size_t n = result->envs ? MIN(result->n_envs, (size_t)TEMPLATE_ENVS_MAX) : 0;
    const char **envs = arena_alloc(&b->arena, (n + 1) * sizeof(*envs));
    size_t bytes = (t->start_cmd ? strlen(t->start_cmd) : 0) + (t->ready_cmd ? strlen(t->ready_cmd) : 0) +
                   (t->image ? strlen(t->image) : 0);
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(result->envs[i]);
        envs[i] = arena_strndup(&b->arena, result->envs[i], length);
        bytes += length;
    }
    t->envs = envs;
    t->n_envs = n;
    b->entry->bytes += bytes - b->bytes;
    b->bytes = bytes;
}

/* ---- rows ---- */

int entry_store(struct template_registry *r, const struct template_entry *e, struct err *err)
{
    return template_rows_put(r->store,
                             &(struct store_template){.id = e->id,
                                                      .name = e->full,
                                                      .is_public = e->is_public,
                                                      .created_at = e->created,
                                                      .updated_at = e->updated,
                                                      .tenant = e->tenant},
                             err);
}

int build_store(struct template_registry *r, const struct build *b, struct err *err)
{
    AUTO_BUF struct buf envs = BUF_INIT(1 << 20);
    const struct template *t = &b->t;
    for (size_t i = 0; i < t->n_envs; i++)
        buf_append(&envs, t->envs[i], strlen(t->envs[i]) + 1);
    if (buf_error(&envs) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "the template's variables are larger than 1 MiB");
    return template_rows_put_build(r->store,
                                   &(struct store_build){.id = b->b.id,
                                                         .template_id = b->entry->id,
                                                         .is_snapshot = b->b.is_snapshot,
                                                         .status = (int)b->b.status,
                                                         .layer = t->layer,
                                                         .source = t->source,
                                                         .cpu_milli = b->b.cpu_milli,
                                                         .memory_bytes = b->b.memory_bytes,
                                                         .disk_bytes = b->b.disk_bytes,
                                                         .size_bytes = b->b.size_bytes,
                                                         .created_at = b->b.created,
                                                         .started_at = b->b.started,
                                                         .finished_at = b->b.finished,
                                                         .start_cmd = t->start_cmd,
                                                         .ready_cmd = t->ready_cmd,
                                                         .workdir = t->workdir,
                                                         .user = t->user,
                                                         .image = t->image,
                                                         .tier = t->tier,
                                                         .has_memory = t->has_memory,
                                                         .envs = buf_str(&envs),
                                                         .reason = b->b.reason,
                                                         .reason_step = b->b.reason_step},
                                   err);
}

static void unlink_tag(struct template_entry *e, struct tag *tag)
{
    size_t i = (size_t)(tag - e->tags);
    struct build *b = tag->build;
    memmove(tag, tag + 1, (--e->n_tags - i) * sizeof(*tag));
    b->n_tags--;
    build_view(b);
}

static void link_tag(struct template_entry *e, const char *name, struct build *b, usec_t at)
{
    e->tags = mem_realloc(e->tags, (e->n_tags + 1) * sizeof(*e->tags));
    struct tag *tag = &e->tags[e->n_tags++];
    *tag = (struct tag){.build = b, .created = at};
    memcpy(tag->tag, name, strlen(name));
    b->n_tags++;
    build_view(b);
}

int entry_set_tag(struct template_registry *r, struct template_entry *e, const char *tag, struct build *b,
                  struct err *err)
{
    struct tag *old = entry_tag(e, tag);
    usec_t now = clock_real();
    if (old && old->build == b)
        return 0;
    if (!old && e->n_tags >= TEMPLATE_TAGS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "a template has at most %d tags: remove some", TEMPLATE_TAGS_MAX);
    if (template_rows_put_tag(
            r->store, &(struct store_tag){.template_id = e->id, .tag = tag, .build_id = b->b.id, .created_at = now},
            err) < 0)
        return -1;
    if (old)
        unlink_tag(e, old);
    link_tag(e, tag, b, now);
    return 0;
}

int entry_drop_tag(struct template_registry *r, struct template_entry *e, const char *tag, struct err *err)
{
    struct tag *old = entry_tag(e, tag);
    if (!old)
        return 0;
    if (template_rows_delete_tag(r->store, e->id, tag, err) < 0)
        return -1;
    unlink_tag(e, old);
    return 0;
}

int entry_prune(struct template_registry *r, struct template_entry *e, struct err *err)
{
    size_t n = 0;
    LIST_FOREACH (struct build, b, &e->builds, node)
        n += b->n_tags == 0;
    LIST_FOREACH (struct build, b, &e->builds, node) {
        if (n <= TEMPLATE_UNTAGGED_MAX)
            break;
        if (b->n_tags || b->b.status < TEMPLATE_READY)
            continue;
        if (template_rows_delete_build(r->store, b->b.id, err) < 0)
            return -1;
        build_free(r, b);
        n--;
    }
    return 0;
}

/* ---- loading ---- */

static void load_template(void *ctx, const struct store_template *row)
{
    if (strlen(row->id) > TEMPLATE_ID_LEN || strlen(row->name) > (size_t)2 * TEMPLATE_NAME_MAX + 1)
        return;
    struct template_entry *e = entry_new(ctx, row->id, str_of(row->name));
    e->tenant = row->tenant;
    e->is_public = row->is_public;
    e->created = row->created_at;
    e->updated = row->updated_at;
}

static void load_build(void *ctx, const struct store_build *row)
{
    struct template_registry *r = ctx;
    struct template_entry *e = map_get(&r->by_id, str_of(row->template_id));
    const char *envs[TEMPLATE_ENVS_MAX] = {NULL};
    AUTO_ARENA struct arena scratch = ARENA_INIT;
    size_t n = 0;
    if (!e || row->status > TEMPLATE_FAILED)
        return;
    struct build *b = build_new(e, row->id, r);
    struct str rest = row->envs, env;
    while (rest.n && n < TEMPLATE_ENVS_MAX && str_split(&rest, '\0', &env))
        if (env.n)
            envs[n++] = arena_strndup(&scratch, env.p, env.n);
    build_take(b, &(struct template_result){.layer = row->layer,
                                            .start_cmd = row->start_cmd,
                                            .ready_cmd = row->ready_cmd,
                                            .workdir = row->workdir,
                                            .user = row->user,
                                            .image = row->image,
                                            .tier = row->tier,
                                            .envs = envs,
                                            .n_envs = n,
                                            .size_bytes = row->size_bytes});
    b->t.source = keep(&b->arena, row->source);
    b->t.has_memory = row->has_memory;
    b->b.status = (enum template_status)row->status;
    b->b.is_snapshot = row->is_snapshot;
    b->b.cpu_milli = row->cpu_milli;
    b->b.memory_bytes = row->memory_bytes;
    b->b.disk_bytes = row->disk_bytes;
    b->b.created = row->created_at;
    b->b.started = row->started_at;
    b->b.finished = row->finished_at;
    b->b.reason = keep(&b->arena, row->reason);
    b->b.reason_step = keep(&b->arena, row->reason_step);
    b->b.n_logs = row->n_logs;
    b->log_full = row->n_logs > TEMPLATE_LOG_LINES_MAX;
    build_view(b);
}

static void load_tag(void *ctx, const struct store_tag *row)
{
    struct template_registry *r = ctx;
    struct template_entry *e = map_get(&r->by_id, str_of(row->template_id));
    struct build *b = map_get(&r->builds, str_of(row->build_id));
    if (e && b && b->entry == e && strlen(row->tag) <= TEMPLATE_NAME_MAX)
        link_tag(e, row->tag, b, row->created_at);
}

int built_load(struct template_registry *r, struct err *err)
{
    if (template_rows_each(r->store, load_template, r, err) < 0 ||
        template_rows_each_build(r->store, load_build, r, err) < 0)
        return -1;
    return template_rows_each_tag(r->store, load_tag, r, err);
}

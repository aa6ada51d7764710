/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "store/template_rows.h"
#include "template/internal.h"

static int need_store(const struct template_registry *r, struct err *err)
{
    return r->store ? 0 : err_set(err, ERR_UNAVAILABLE, "templates can't be built here: there is no store");
}

static int builds_find_build(struct template_registry *r, const char *id, struct build **ret_build, struct err *err)
{
    registry_refresh(r);
    *ret_build = map_get(&r->builds, str_of(id));
    return *ret_build ? 0 : err_set(err, ERR_NOT_FOUND, "Build '%.64s' not found", id);
}

/* ---- requests ---- */

static int add_wanted(struct build *b, const char *tag, struct err *err)
{
    for (size_t i = 0; i < b->n_wanted; i++)
        if (strcmp(b->wanted[i], tag) == 0)
            return 0;
    if (b->n_wanted == TEMPLATE_TAGS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "more than %d tags", TEMPLATE_TAGS_MAX);
    b->wanted = mem_realloc(b->wanted, (b->n_wanted + 1) * sizeof(*b->wanted));
    memcpy(b->wanted[b->n_wanted++], tag, strlen(tag) + 1);
    return 0;
}

static int want_tags(struct build *b, const struct template_name *name, const struct template_request *request,
                     struct err *err)
{
    char tag[TEMPLATE_NAME_MAX + 1];
    if (name->has_tag && add_wanted(b, name->tag, err) < 0)
        return -1;
    for (size_t i = 0; i < request->n_tags; i++)
        if (template_tag_parse(request->tags[i], tag, err) < 0 || add_wanted(b, tag, err) < 0)
            return -1;
    return b->n_wanted ? 0 : add_wanted(b, TEMPLATE_TAG_DEFAULT, err);
}

static int supersede(struct template_registry *r, struct template_entry *e, const struct build *by, struct err *err)
{
    LIST_FOREACH (struct build, b, &e->builds, node) {
        if (b == by || b->b.status != TEMPLATE_WAITING)
            continue;
        b->b.status = TEMPLATE_FAILED;
        b->b.finished = clock_real();
        b->b.reason = "The build was canceled because it was superseded by a newer one.";
        if (build_store(r, b, err) < 0)
            return -1;
    }
    return entry_prune(r, e, err);
}

int template_request(struct template_registry *r, const struct template_request *request,
                     const struct template_build **ret_build, struct err *err)
{
    struct template_name name;
    char id[ID_UUID_LEN + 1];
    if (need_store(r, err) < 0 || template_name_parse(request->name, &name, err) < 0)
        return -1;
    registry_refresh(r);
    struct template_entry *e = built_find(r, request->tenant, &name, true);
    bool is_new = !e;
    if (is_new && map_count(&r->by_id) >= TEMPLATE_BUILT_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %d templates and snapshots: delete some",
                       TEMPLATE_BUILT_MAX);
    if (is_new)
        e = built_new(r, request->tenant, &name, clock_real());
    id_uuid(id);
    struct build *b = build_new(e, id, r);
    b->b.created = clock_real();
    b->b.cpu_milli = request->cpu_milli;
    b->b.memory_bytes = request->memory_bytes;
    b->b.disk_bytes = request->disk_bytes;
    e->updated = b->b.created;
    if (want_tags(b, &name, request, err) < 0 || entry_store(r, e, err) < 0 || build_store(r, b, err) < 0) {
        build_free(r, b);
        if (is_new)
            entry_free(r, e);
        return -1;
    }
    build_view(b);
    if (supersede(r, e, b, err) < 0)
        return -1;
    *ret_build = &b->b;
    return 0;
}

const struct template_build *template_build_find(struct template_registry *r, uint64_t view, struct str id)
{
    registry_refresh(r);
    const struct build *b = map_get(&r->builds, id);
    return b && view_has(view, b->entry->tenant) ? &b->b : NULL;
}

void template_build_tags(struct template_registry *r, const char *id, void (*fn)(void *ctx, const char *tag), void *ctx)
{
    const struct build *b = map_get(&r->builds, str_of(id));
    for (size_t i = 0; b && i < b->n_wanted; i++)
        fn(ctx, b->wanted[i]);
}

void template_builds_each(struct template_registry *r, const char *template_id,
                          bool (*fn)(void *ctx, const struct template_build *build), void *ctx)
{
    registry_refresh(r);
    struct template_entry *e = map_get(&r->by_id, str_of(template_id));
    for (struct list *node = e ? e->builds.prev : NULL; node && node != &e->builds; node = node->prev)
        if (!fn(ctx, &container_of(node, struct build, node)->b))
            return;
}

/* ---- life ---- */

int template_build_begin(struct template_registry *r, const char *id, struct err *err)
{
    struct build *b;
    if (builds_find_build(r, id, &b, err) < 0)
        return -1;
    if (b->b.status != TEMPLATE_WAITING)
        return err_set(err, ERR_FAILED_PRECONDITION, "build is not in waiting state");
    b->b.status = TEMPLATE_BUILDING;
    b->b.started = clock_real();
    return build_store(r, b, err);
}

int template_build_done(struct template_registry *r, const char *id, const struct template_result *result,
                        struct err *err)
{
    struct build *b;
    if (builds_find_build(r, id, &b, err) < 0)
        return -1;
    struct template_entry *e = b->entry;
    build_take(b, result);
    if (!b->b.cpu_milli)
        b->b.cpu_milli = result->cpu_milli;
    if (!b->b.memory_bytes)
        b->b.memory_bytes = result->memory_bytes;
    b->b.status = TEMPLATE_READY;
    b->b.finished = e->updated = clock_real();
    build_view(b);
    if (build_store(r, b, err) < 0 || entry_store(r, e, err) < 0)
        return -1;
    for (size_t i = 0; i < b->n_wanted; i++)
        if (entry_set_tag(r, e, b->wanted[i], b, err) < 0)
            return -1;
    mem_free(TAKE_PTR(b->wanted));
    b->n_wanted = 0;
    return entry_prune(r, e, err);
}

int template_build_fail(struct template_registry *r, const char *id, const char *step, const char *reason,
                        struct err *err)
{
    struct build *b;
    if (builds_find_build(r, id, &b, err) < 0)
        return -1;
    b->b.status = TEMPLATE_FAILED;
    b->b.finished = clock_real();
    b->b.reason = keep(&b->arena, reason);
    b->b.reason_step = keep(&b->arena, step);
    return build_store(r, b, err);
}

/* ---- snapshots ---- */

int template_add_snapshot(struct template_registry *r, const struct template_snapshot *s,
                          const struct template **ret_template, struct err *err)
{
    struct template_name name = {.tag = TEMPLATE_TAG_DEFAULT};
    char id[ID_UUID_LEN + 1];
    if (need_store(r, err) < 0 || (s->name.n && template_name_parse(s->name, &name, err) < 0))
        return -1;
    if (s->name.n && !name.space[0])
        memcpy(name.space, TEMPLATE_NAMESPACE, sizeof(TEMPLATE_NAMESPACE));
    if (!s->of) /* which a look at the files would take away */
        registry_refresh(r);
    if (map_count(&r->by_id) >= TEMPLATE_BUILT_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %d templates and snapshots: delete some",
                       TEMPLATE_BUILT_MAX);
    struct template_entry *e = s->name.n ? built_find(r, s->tenant, &name, true) : NULL;
    bool is_new = !e;
    if (is_new)
        e = built_new(r, s->tenant, &name, clock_real());
    id_uuid(id);
    struct build *b = build_new(e, id, r);
    const struct template *of = s->of;
    build_take(b, &(struct template_result){.layer = s->layer,
                                            .start_cmd = of ? of->start_cmd : NULL,
                                            .ready_cmd = of ? of->ready_cmd : NULL,
                                            .workdir = of ? of->workdir : NULL,
                                            .user = of ? of->user : NULL,
                                            .tier = s->tier,
                                            .has_memory = s->has_memory,
                                            .envs = of ? of->envs : NULL,
                                            .n_envs = of ? of->n_envs : 0,
                                            .size_bytes = of ? of->size_bytes : 0});
    b->t.source = keep(&b->arena, s->source);
    b->b.is_snapshot = true;
    b->b.status = TEMPLATE_READY;
    b->b.created = b->b.started = b->b.finished = e->updated = clock_real();
    b->b.cpu_milli = s->cpu_milli;
    b->b.memory_bytes = s->memory_bytes;
    b->b.disk_bytes = s->disk_bytes;
    if (entry_store(r, e, err) < 0 || build_store(r, b, err) < 0 || entry_set_tag(r, e, name.tag, b, err) < 0) {
        if (!b->n_tags)
            build_free(r, b);
        if (is_new)
            entry_free(r, e);
        return -1;
    }
    if (entry_prune(r, e, err) < 0)
        return -1;
    build_view(b);
    *ret_template = &b->t;
    return 0;
}

size_t template_count(struct template_registry *r, uint64_t view)
{
    size_t n = 0;
    registry_refresh(r);
    MAP_FOREACH (const struct template_entry, e, &r->by_id)
        n += view_has(view, e->tenant);
    return n;
}

size_t template_bytes(struct template_registry *r, uint64_t view)
{
    size_t n = 0;
    MAP_FOREACH (const struct template_entry, e, &r->by_id)
        n += view_has(view, e->tenant) ? e->bytes : 0;
    return n;
}

size_t template_count_beside(struct template_registry *r, uint64_t tenant, struct str ref)
{
    struct template_name name;
    struct err ignored;
    size_t n = template_count(r, tenant);
    bool is_there = ref.n && template_name_parse(ref, &name, &ignored) == 0 && built_find(r, tenant, &name, true);
    return n - is_there;
}

/* ---- removal ---- */

int template_remove(struct template_registry *r, uint64_t view, struct str ref, struct err *err)
{
    struct template_name name;
    if (template_name_parse(ref, &name, err) < 0)
        return -1;
    registry_refresh(r);
    struct template_entry *e = built_find(r, view, &name, true);
    if (!e && registry_file(r, ref))
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "template '%.*s' comes from a file: to remove it, delete that file from %s", STR_ARG(ref),
                       r->dir);
    if (!e)
        return err_set(err, ERR_NOT_FOUND, "template '%.*s' not found", STR_ARG(ref));
    for (size_t i = 0; i < e->n_tags; i++)
        if (template_rows_delete_tag(r->store, e->id, e->tags[i].tag, err) < 0)
            return -1;
    LIST_FOREACH (struct build, b, &e->builds, node)
        if (template_rows_delete_build(r->store, b->b.id, err) < 0)
            return -1;
    if (template_rows_delete(r->store, e->id, err) < 0)
        return -1;
    registry_forget_use(r, e->id);
    entry_free(r, e);
    return 0;
}

static struct tag *find_tag(struct template_registry *r, uint64_t view, struct str ref,
                            struct template_entry **ret_entry)
{
    struct template_name name;
    struct err ignored;
    if (str_find_char(ref, ':') < 0 || template_name_parse(ref, &name, &ignored) < 0)
        return NULL;
    registry_refresh(r);
    *ret_entry = built_find(r, view, &name, true);
    return *ret_entry && strcmp(name.name, (*ret_entry)->id) != 0 ? entry_tag(*ret_entry, name.tag) : NULL;
}

bool template_is_one_of_several(struct template_registry *r, uint64_t view, struct str ref)
{
    struct template_entry *e;
    const struct tag *tag = find_tag(r, view, ref, &e);
    return tag && tag->build->b.is_snapshot && e->n_tags > 1;
}

int template_remove_tag(struct template_registry *r, uint64_t view, struct str ref, struct err *err)
{
    struct template_entry *e;
    const struct tag *tag = find_tag(r, view, ref, &e);
    if (!tag)
        return err_set(err, ERR_NOT_FOUND, "template '%.*s' not found", STR_ARG(ref));
    struct build *b = tag->build;
    if (entry_drop_tag(r, e, tag->tag, err) < 0)
        return -1;
    if (b->n_tags)
        return 0;
    if (template_rows_delete_build(r->store, b->b.id, err) < 0)
        return -1;
    build_free(r, b);
    return 0;
}

/* ---- logs ---- */

/* Appends text as it may be shown: UTF-8, without control characters but tabs, without what colours a terminal. */
static void append_clean(struct buf *b, struct str s)
{
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        if (c == 0x1b && i + 1 < s.n && s.p[i + 1] == '[') {
            for (i += 2; i < s.n && !(s.p[i] >= '@' && s.p[i] <= '~'); i++)
                ;
            i++;
        } else if (c == '\t' || (c >= 0x20 && c != 0x7f && len <= s.n - i && str_is_utf8(str_n(s.p + i, len)))) {
            buf_append(b, s.p + i, len);
            i += len;
        } else {
            if (c != '\r' && c != 0x1b)
                buf_append_cstr(b, c >= 0x80 ? "\xef\xbf\xbd" : "?");
            i++;
        }
    }
}

int template_log_add(struct template_registry *r, const char *build_id, enum template_level level, const char *step,
                     struct str message, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(4 * TEMPLATE_LOG_MESSAGE_MAX);
    struct build *b;
    if (builds_find_build(r, build_id, &b, err) < 0)
        return -1;
    if (b->log_full && level < TEMPLATE_ERROR)
        return 0;
    append_clean(&text, str_n(message.p, MIN(message.n, (size_t)TEMPLATE_LOG_MESSAGE_MAX)));
    if (message.n > TEMPLATE_LOG_MESSAGE_MAX)
        buf_append_cstr(&text, " [...]");
    if (!b->log_full && (b->b.n_logs >= TEMPLATE_LOG_LINES_MAX || b->log_bytes > TEMPLATE_LOG_BYTES_MAX)) {
        b->log_full = true;
        buf_clear(&text);
        buf_printf(&text, "The log is full (%d lines, %d MiB): what follows is not kept", TEMPLATE_LOG_LINES_MAX,
                   TEMPLATE_LOG_BYTES_MAX >> 20);
        level = TEMPLATE_WARN;
    }
    b->log_bytes += buf_len(&text);
    return template_rows_append_log(r->store, b->b.id,
                                    &(struct store_log){.seq = ++b->b.n_logs,
                                                        .at = clock_real(),
                                                        .level = (int)level,
                                                        .step = str_of(step),
                                                        .message = buf_str(&text)},
                                    err);
}

struct each_log {
    void (*fn)(void *ctx, const struct template_log *line);
    void *ctx;
};

static void each_log(void *ctx, const struct store_log *row)
{
    const struct each_log *each = ctx;
    each->fn(each->ctx, &(struct template_log){.seq = row->seq,
                                               .at = row->at,
                                               .level = (enum template_level)row->level,
                                               .step = row->step,
                                               .message = row->message});
}

int template_log_each(struct template_registry *r, const char *build_id, enum template_level least, uint64_t skip,
                      uint64_t limit, void (*fn)(void *ctx, const struct template_log *line), void *ctx,
                      struct err *err)
{
    struct each_log each = {fn, ctx};
    bool all = least == TEMPLATE_DEBUG;
    if (need_store(r, err) < 0)
        return -1;
    /* Without a filter the sequence numbers are the offsets: nothing has to be counted. */
    return template_rows_read_log(r->store, build_id, all ? skip : 0, (int)least, all ? 0 : skip, limit, each_log,
                                  &each, err);
}

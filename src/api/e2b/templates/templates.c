/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: lists, look-ups, publishing, deletion. Every template belongs to the one owner of the installation; one
 * that stands in a file counts as built once, as it stands, by nobody in particular.
 */
#include "api/e2b/templates/templates.h"
#include "api/e2b/control/create_spec.h"
#include "api/e2b/control/list_query.h"
#include "http/url.h"
#include "sandbox/templates.h"

#include <inttypes.h>

struct template_registry *templates_of(const struct call *c)
{
    return core_templates(call_core(c));
}

const char *templates_status_name(enum template_status status)
{
    static const char *const names[] = {"waiting", "building", "ready", "error"};
    return names[status];
}

bool templates_committed(struct call *c)
{
    return call_ok(c, core_templates_commit(call_core(c), &c->err));
}

bool templates_find(struct call *c, struct str ref, struct template_info *ret_info)
{
    return call_ok(c, template_ref_read(ref, http_arena(c->req), &ref, &c->err)) &&
           call_ok(c, template_info_find(templates_of(c), c->actor.who.view, ref, ret_info, &c->err));
}

/* ---- JSON ---- */

/* Without its tag; and without its namespace when `bare`. */
static struct str name_of(const char *alias, bool bare)
{
    struct str name = str_of(alias);
    ssize_t colon = str_find_char(name, ':');
    if (colon >= 0)
        name.n = (size_t)colon;
    ssize_t slash = str_find_char(name, '/');
    return bare && slash >= 0 ? str_sub(name, (size_t)slash + 1) : name;
}

void templates_append_names(struct buf *b, const char *field, const struct template_info *info, bool bare)
{
    const char *const *names = info->file ? info->file->aliases : &info->name;
    size_t n_names = info->file ? info->file->n_aliases : info->name ? 1 : 0;
    json_put_comma(b);
    buf_printf(b, "\"%s\":[", field);
    for (size_t i = 0; i < n_names; i++) {
        struct str name = name_of(names[i], bare);
        bool is_new = true;
        for (size_t k = 0; k < i && is_new; k++)
            is_new = !str_eq(name, name_of(names[k], bare));
        if (!is_new)
            continue;
        json_put_comma(b);
        buf_append_json_string(b, name);
    }
    buf_append_char(b, ']');
}

static void append_time_or_null(struct buf *b, const char *field, usec_t at)
{
    if (at)
        json_put_time(b, field, at, 3);
    else
        json_put_text(b, field, NULL);
}

/* What a file's template has of a build. */
static void build_of_file(const struct template *t, struct template_build *ret_build)
{
    *ret_build = (struct template_build){.id = t->build_id,
                                         .template_id = t->id,
                                         .status = TEMPLATE_READY,
                                         .created = t->built,
                                         .started = t->built,
                                         .finished = t->built,
                                         .cpu_milli = t->cpu_milli,
                                         .memory_bytes = t->memory_bytes,
                                         .disk_bytes = t->disk_bytes};
}

/* What a template and a build of it have in common. */
static void append_sizes(struct buf *b, const struct core *core, const struct template_build *build)
{
    struct template sizes = {
        .cpu_milli = build->cpu_milli, .memory_bytes = build->memory_bytes, .disk_bytes = build->disk_bytes};
    buf_printf(b,
               "\"buildID\":\"%s\",\"cpuCount\":%u,\"memoryMB\":%" PRIu64 ",\"diskSizeMB\":%" PRIu64
               ",\"envdVersion\":\"" ENVD_VERSION "\"",
               build->id, (core_template_cpu_milli(core, &sizes) + 999) / 1000,
               core_template_memory_bytes(core, &sizes) >> 20, core_template_disk_bytes(core, &sizes) >> 20);
}

static void templates_append_head(struct buf *b, const struct template_info *info)
{
    json_open(b, "templateID", str_of(info->id));
    templates_append_names(b, "aliases", info, true);
    templates_append_names(b, "names", info, false);
    buf_printf(b, ",\"public\":%s", info->is_public ? "true" : "false");
    json_put_time(b, "createdAt", info->created, 3);
    json_put_time(b, "updatedAt", info->updated, 3);
    append_time_or_null(b, "lastSpawnedAt", info->spawned);
    buf_printf(b, ",\"spawnCount\":%" PRIu64, info->n_spawns);
}

static void append_template(struct buf *b, const struct core *core, const struct template_info *info)
{
    struct template_build of_file;
    const struct template_build *build = info->build;
    if (info->file) {
        build_of_file(info->file, &of_file);
        build = &of_file;
    }
    templates_append_head(b, info);
    buf_append_char(b, ',');
    append_sizes(b, core, build);
    buf_printf(b, ",\"createdBy\":null,\"buildCount\":%zu,\"buildStatus\":\"%s\"}", info->n_builds,
               templates_status_name(build->status));
}

/* ---- lists ---- */

struct templates_listing {
    const struct core *core;
    struct buf b;
    const char *after; /* an id; NULL: from the first */
    size_t limit, n;
    char last[TEMPLATE_NAME_MAX + 1];
    bool more;
};

static bool templates_list_one(void *ctx, const struct template_info *info)
{
    struct templates_listing *l = ctx;
    bool is_shown = info->file || (!info->is_snapshot && info->build);
    if (!is_shown || (l->after && strcmp(info->id, l->after) <= 0))
        return true;
    if (l->n == l->limit) {
        l->more = true;
        return false;
    }
    l->n++;
    append_template(&l->b, l->core, info);
    memcpy(l->last, info->id, strlen(info->id) + 1);
    return true;
}

static void templates_answer_list(struct call *c, struct templates_listing *l)
{
    l->core = call_core(c);
    buf_append_char(&l->b, '[');
    template_info_each(templates_of(c), c->actor.who.view, templates_list_one, l);
    buf_append_char(&l->b, ']');
    if (l->more)
        http_add_header(c->req, STR("x-next-token"), str_of(l->last));
    call_json_buf(c, 200, &l->b);
    buf_fini(&l->b);
}

void templates_list(struct call *c)
{
    struct templates_listing l = {.b = BUF_INIT(REPLY_MAX), .limit = SIZE_MAX};
    templates_answer_list(c, &l);
}

void templates_list_v2(struct call *c)
{
    struct templates_listing l = {.b = BUF_INIT(REPLY_MAX), .limit = LIST_LIMIT_MAX};
    struct str query = http_query(c->req), value;
    uint64_t limit;
    int r = url_query_get(http_arena(c->req), query, "limit", &value);
    if (r != 0) {
        if (r < 0 || str_to_u64(value, &limit) < 0 || limit < 1 || limit > LIST_LIMIT_MAX) {
            call_fail(c, 400, "Invalid format for parameter limit: number must be between 1 and %d", LIST_LIMIT_MAX);
            return;
        }
        l.limit = (size_t)limit;
    }
    r = url_query_get(http_arena(c->req), query, "nextToken", &value);
    if (r < 0 || (r && value.n > TEMPLATE_NAME_MAX)) {
        call_fail(c, 400, "Invalid next token");
        return;
    }
    l.after = r && value.n ? arena_strndup(http_arena(c->req), value.p, value.n) : NULL;
    templates_answer_list(c, &l);
}

/* ---- one ---- */

struct builds {
    const struct core *core;
    struct buf *b;
};

static bool append_build(void *ctx, const struct template_build *build)
{
    struct builds *all = ctx;
    json_put_comma(all->b);
    buf_append_char(all->b, '{');
    append_sizes(all->b, all->core, build);
    buf_printf(all->b, ",\"status\":\"%s\"", templates_status_name(build->status));
    json_put_time(all->b, "createdAt", build->created, 3);
    json_put_time(all->b, "updatedAt", MAX(MAX(build->created, build->started), build->finished), 3);
    append_time_or_null(all->b, "finishedAt", build->finished);
    buf_append_char(all->b, '}');
    return true;
}

void templates_get(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct builds all = {.core = call_core(c), .b = &b};
    struct template_info info;
    struct template_build of_file;
    if (!templates_find(c, c->args[0], &info))
        return;
    templates_append_head(&b, &info);
    buf_append_cstr(&b, ",\"builds\":[");
    if (info.file) {
        build_of_file(info.file, &of_file);
        (void)append_build(&all, &of_file);
    } else {
        template_builds_each(templates_of(c), info.id, append_build, &all);
    }
    buf_append_cstr(&b, "]}");
    call_json_buf(c, 200, &b);
}

void templates_alias(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    struct template_info info;
    const struct template *t;
    if (!templates_find(c, c->args[0], &info))
        return;
    json_open(&b, "templateID", str_of(info.id));
    buf_printf(&b, ",\"public\":%s}", info.is_public ? "true" : "false");
    struct str ref;
    if (call_ok(c, template_ref_read(c->args[0], http_arena(c->req), &ref, &c->err)) &&
        (str_find_char(ref, ':') < 0 ||
         call_ok(c, template_resolve(templates_of(c), c->actor.who.view, ref, &t, NULL, &c->err))))
        call_json(c, 200, buf_str(&b));
}

/* ---- changes ---- */

/* route->what: its answer tells the names. */
void templates_publish(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(16384);
    struct template_info info;
    bool is_public = false;
    struct err err;
    int r = json_get_bool(c->body, "public", &is_public, &err);
    if (r < 0) {
        call_fail(c, 400, "Invalid request body: %s", err.msg);
        return;
    }
    if ((r && !call_ok(c, core_template_publish(call_core(c), &c->actor, c->args[0], is_public, &c->err))) ||
        !templates_committed(c) || !templates_find(c, c->args[0], &info))
        return;
    buf_append_char(&b, '{');
    if (c->route->what)
        templates_append_names(&b, "names", &info, false);
    buf_append_char(&b, '}');
    call_json(c, 200, buf_str(&b));
}

void templates_delete(struct call *c)
{
    struct template_info info;
    struct err err;
    if (!templates_find(c, c->args[0], &info))
        return;
    struct arena *a = http_arena(c->req);
    const char *id = arena_strndup(a, info.id, strlen(info.id));
    /* A snapshot's id is its name and its tag. */
    bool is_one = info.is_snapshot && info.n_tags && str_find_char(c->args[0], ':') >= 0;
    const char *ref = is_one ? arena_strndup(a, c->args[0].p, c->args[0].n) : id;
    if (core_template_remove(call_core(c), &c->actor, str_of(ref), &err) < 0) {
        (void)err_prefix(&err, "cannot delete template '%s'", is_one ? ref : id);
        call_fail_err(c, &err);
        return;
    }
    if (e2b_of(c)->builder && !is_one)
        builder_cancel_template(e2b_of(c)->builder, id, "the template was deleted");
    if (templates_committed(c))
        call_empty(c, 204);
}

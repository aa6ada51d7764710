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

json_t *templates_names(const struct template_info *info, bool bare)
{
    const char *const *names = info->file ? info->file->aliases : &info->name;
    size_t n_names = info->file ? info->file->n_aliases : info->name ? 1 : 0;
    json_t *all = json_array();
    for (size_t i = 0; i < n_names; i++) {
        struct str name = name_of(names[i], bare);
        bool is_new = true;
        for (size_t k = 0; k < i && is_new; k++)
            is_new = !str_eq(name, name_of(names[k], bare));
        if (is_new)
            (void)json_array_append_new(all, call_text(name));
    }
    return all;
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
json_t *templates_time(usec_t at)
{
    char text[CLOCK_TEXT_MAX];
    clock_format(at, 3, text);
    return json_string(text);
}

static json_t *templates_sizes(const struct core *core, const struct template_build *build)
{
    struct template sizes = {
        .cpu_milli = build->cpu_milli, .memory_bytes = build->memory_bytes, .disk_bytes = build->disk_bytes};
    return json_pack("{s:s,s:i,s:I,s:I,s:s}", "buildID", build->id, "cpuCount",
                     (int)((core_template_cpu_milli(core, &sizes) + 999) / 1000), "memoryMB",
                     (json_int_t)(core_template_memory_bytes(core, &sizes) >> 20), "diskSizeMB",
                     (json_int_t)(core_template_disk_bytes(core, &sizes) >> 20), "envdVersion", ENVD_VERSION);
}

static json_t *templates_head(const struct template_info *info)
{
    return json_pack("{s:s,s:o,s:o,s:b,s:o,s:o,s:o?,s:I}", "templateID", info->id, "aliases",
                     templates_names(info, true), "names", templates_names(info, false), "public", info->is_public,
                     "createdAt", templates_time(info->created), "updatedAt", templates_time(info->updated),
                     "lastSpawnedAt", call_time(info->spawned), "spawnCount", (json_int_t)info->n_spawns);
}

static json_t *template_json(const struct core *core, const struct template_info *info)
{
    struct template_build of_file;
    const struct template_build *build = info->build;
    json_t *one = templates_head(info);
    if (info->file) {
        build_of_file(info->file, &of_file);
        build = &of_file;
    }
    (void)json_object_update_new(one, templates_sizes(core, build));
    (void)json_object_update_new(one, json_pack("{s:n,s:I,s:s}", "createdBy", "buildCount", (json_int_t)info->n_builds,
                                                "buildStatus", templates_status_name(build->status)));
    return one;
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
    json_put_value(&l->b, template_json(l->core, info));
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
    json_t *all;
};

static bool templates_add_build(void *ctx, const struct template_build *build)
{
    const struct builds *to = ctx;
    json_t *one = templates_sizes(to->core, build);
    (void)json_object_update_new(one,
                                 json_pack("{s:s,s:o,s:o,s:o?}", "status", templates_status_name(build->status),
                                           "createdAt", templates_time(build->created), "updatedAt",
                                           templates_time(MAX(MAX(build->created, build->started), build->finished)),
                                           "finishedAt", call_time(build->finished)));
    (void)json_array_append_new(to->all, one);
    return true;
}

void templates_get(struct call *c)
{
    struct template_info info;
    struct template_build of_file;
    if (!templates_find(c, c->args[0], &info))
        return;
    struct builds builds = {call_core(c), json_array()};
    json_t *one = templates_head(&info);
    if (info.file) {
        build_of_file(info.file, &of_file);
        (void)templates_add_build(&builds, &of_file);
    } else {
        template_builds_each(templates_of(c), info.id, templates_add_build, &builds);
    }
    (void)json_object_set_new(one, "builds", builds.all);
    call_value(c, 200, one);
}

void templates_alias(struct call *c)
{
    struct template_info info;
    const struct template *t;
    struct str ref;
    if (!templates_find(c, c->args[0], &info))
        return;
    const char *id = arena_strdup(http_arena(c->req), info.id); /* the next look may read it again */
    if (call_ok(c, template_ref_read(c->args[0], http_arena(c->req), &ref, &c->err)) &&
        (str_find_char(ref, ':') < 0 ||
         call_ok(c, template_resolve(templates_of(c), c->actor.who.view, ref, &t, NULL, &c->err))))
        call_value(c, 200, json_pack("{s:s,s:b}", "templateID", id, "public", info.is_public));
}

/* ---- changes ---- */

/* route->what: its answer tells the names. */
void templates_publish(struct call *c)
{
    struct template_info info;
    bool is_public = false;
    struct err err;
    int r = json_get_bool(c->body, "public", &is_public, &err);
    if (r < 0)
        call_fail(c, 400, "Invalid request body: %s", err.msg);
    else if ((!r || call_ok(c, core_template_publish(call_core(c), &c->actor, c->args[0], is_public, &c->err))) &&
             templates_committed(c) && templates_find(c, c->args[0], &info))
        call_value(c, 200, json_pack("{s:o*}", "names", c->route->what ? templates_names(&info, false) : NULL));
}

void templates_delete(struct call *c)
{
    struct template_info info;
    struct err err;
    if (!templates_find(c, c->args[0], &info))
        return;
    struct arena *a = http_arena(c->req);
    const char *id = arena_strdup(a, info.id);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Templates, their builds, and the files that builds are sent. */
#include "sandbox/templates.h"
#include "api/kit/receive.h"
#include "api/native/handlers.h"
#include "build/builder.h"
#include "template/builds.h"

enum { LOG_LINES = 500 };

static struct template_registry *registry(const struct call *c)
{
    return core_templates(call_core(c));
}

static bool committed(struct call *c)
{
    return call_ok(c, core_templates_commit(call_core(c), &c->err));
}

static struct builder *builder_of(struct call *c)
{
    if (!native_of(c)->config.builder)
        call_refuse(c, ERR_UNIMPLEMENTED, "this service can't build templates");
    return native_of(c)->config.builder;
}

static const char *status_name(enum template_status status)
{
    static const char *const names[] = {"waiting", "building", "ready", "failed"};
    return names[status];
}

/* ---- templates ---- */

static json_t *template_json(const struct core *core, const struct template_info *info)
{
    const struct template *made = info->file ? info->file : info->build ? info->build->made : NULL;
    bool has_failed = info->build && info->build->status == TEMPLATE_FAILED;
    json_t *tags = json_array(), *one;
    for (size_t i = 0; i < info->n_tags; i++)
        (void)json_array_append_new(tags,
                                    json_pack("{s:s,s:s?,s:o?}", "tag", info->tags[i].tag, "build",
                                              info->tags[i].build_id, "created_at", call_time(info->tags[i].created)));
    one = json_pack(
        "{s:s,s:s?,s:s?,s:o?,s:o?,s:o?,s:I,s:I,s:b,s:b,s:b,s:o}", "id", info->id, "name", info->name, "status",
        info->file    ? "ready"
        : info->build ? status_name(info->build->status)
                      : NULL,
        "created_at", call_time(info->created), "updated_at", call_time(info->updated), "spawned_at",
        call_time(info->spawned), "spawns", (json_int_t)info->n_spawns, "builds", (json_int_t)info->n_builds, "public",
        info->is_public, "in_file", info->file != NULL, "snapshot", info->is_snapshot, "tags", tags);
    if (has_failed)
        (void)json_object_update_new(one, json_pack("{s:o?,s:o?}", "reason", call_cstr(info->build->reason), "step",
                                                    call_cstr(info->build->reason_step)));
    if (made)
        (void)json_object_update_new(
            one,
            json_pack("{s:i,s:I,s:I,s:o?,s:o?,s:o?,s:o?}", "cpu_milli", (int)core_template_cpu_milli(core, made),
                      "memory_bytes", (json_int_t)core_template_memory_bytes(core, made), "size_bytes",
                      (json_int_t)made->size_bytes, "start_cmd", call_cstr(made->start_cmd), "ready_cmd",
                      call_cstr(made->ready_cmd), "user", call_cstr(made->user), "workdir", call_cstr(made->workdir)));
    return one;
}

struct native_listing {
    json_t *all;
    const struct core *core;
};

static bool templates_list_one(void *ctx, const struct template_info *info)
{
    const struct native_listing *l = ctx;
    if (!info->is_snapshot)
        (void)json_array_append_new(l->all, template_json(l->core, info));
    return true;
}

void native_templates_list(struct call *c)
{
    struct native_listing l = {NULL, call_core(c)};
    struct template_info info;
    struct str ref;
    bool is_one = call_query(c, "ref", &ref);
    if (is_one && !call_ok(c, template_info_find(registry(c), c->actor.who.view, ref, &info, &c->err)))
        return;
    l.all = is_one ? json_pack("[o]", template_json(l.core, &info)) : json_array();
    if (!is_one)
        template_info_each(registry(c), c->actor.who.view, templates_list_one, &l);
    call_value(c, 200, json_pack("{s:o}", "templates", l.all));
}

/* The template that the query names; false: answered. */
static bool templates_look_up(struct call *c, struct template_info *ret_info)
{
    struct str ref;
    *ret_info = (struct template_info){0};
    if (!call_query(c, "ref", &ref))
        return call_refuse(c, ERR_INVALID_ARGUMENT, "ref is missing: the template's id or name");
    return call_ok(c, template_info_find(registry(c), c->actor.who.view, ref, ret_info, &c->err));
}

void native_templates_remove(struct call *c)
{
    struct template_info info;
    if (!templates_look_up(c, &info))
        return;
    const char *id = arena_strdup(http_arena(c->req), info.id);
    if (!call_ok(c, core_template_remove(call_core(c), &c->actor, str_of(id), &c->err)))
        return;
    if (native_of(c)->config.builder)
        builder_cancel_template(native_of(c)->config.builder, id, "the template was removed");
    if (committed(c))
        call_empty(c, 204);
}

/* Up to three actions, each a step. */
struct templates_change {
    struct str ref;
    const char *id;
    unsigned n_done;
};

static int change_next(struct call *c, struct err *err)
{
    const struct templates_change *k = c->state;
    const struct str *add = NULL, *drop = NULL;
    size_t n_add = 0, n_drop = 0;
    bool is_public = false;
    const char *build;
    if (JSON_WANTS(c->body, http_arena(c->req), err, JSON_WANT_BOOL("public", &is_public),
                   JSON_WANT_STRS("add_tags", &add, &n_add), JSON_WANT_STRS("remove_tags", &drop, &n_drop)) < 0)
        return -1;
    struct core *core = call_core(c);
    if (k->n_done == 0 && json_field(c->body, "public"))
        return core_template_publish(core, &c->actor, str_of(k->id), is_public, err);
    if (k->n_done == 1 && n_add)
        return core_template_tag(core, &c->actor, k->ref, add, n_add, &build, err);
    return k->n_done == 2 && n_drop ? core_template_untag(core, &c->actor, str_of(k->id), drop, n_drop, err) : 0;
}

static void change_step(struct call *c)
{
    struct templates_change *k = c->state;
    struct template_info info;
    struct err err;
    for (; k->n_done < 3; k->n_done++) {
        if (!call_ok(c, change_next(c, &c->err)))
            return;
    }
    if (committed(c) && template_info_find(registry(c), c->actor.who.view, str_of(k->id), &info, &err) == 0)
        call_value(c, 200, template_json(call_core(c), &info));
}

void native_templates_change(struct call *c)
{
    struct template_info info;
    struct str ref;
    if (!templates_look_up(c, &info) || !call_query(c, "ref", &ref))
        return;
    struct templates_change *k = call_state(c, sizeof(*k), NULL);
    *k = (struct templates_change){ref, arena_strdup(http_arena(c->req), info.id), 0};
    call_step(c, change_step);
}

/* ---- builds ---- */

static void add_step(void *ctx, const struct build_step_size *size)
{
    (void)json_array_append_new(ctx,
                                json_pack("{s:o,s:b,s:o?}", "step", call_cstr(size->step), "cached", size->is_cached,
                                          "bytes", size->is_known ? json_integer((json_int_t)size->bytes) : NULL));
}

static json_t *build_json(const struct call *c, const struct template_build *build)
{
    json_t *steps = json_array();
    if (native_of(c)->config.builder)
        builder_each_step(native_of(c)->config.builder, build->id, add_step, steps);
    return json_pack("{s:s,s:s,s:s,s:I,s:o?,s:o?,s:o?,s:o?,s:o?,s:o}", "id", build->id, "template", build->template_id,
                     "status", status_name(build->status), "lines", (json_int_t)build->n_logs, "reason",
                     call_cstr(build->reason), "step", call_cstr(build->reason_step), "created_at",
                     call_time(build->created), "started_at", call_time(build->started), "finished_at",
                     call_time(build->finished), "steps", steps);
}

/* What is asked for, and then built: two actions. */
static int read_make(struct call *c, struct template_request *request, struct build_spec *spec, struct err *err)
{
    json_t *what = NULL;
    int64_t cpu = 0, memory = 0;
    if (JSON_WANTS(c->body, http_arena(c->req), err, JSON_NEED_STR("name", &request->name),
                   JSON_WANT_STRS("tags", &request->tags, &request->n_tags),
                   JSON_WANT_INT("cpu_milli", 0, 1000000, &cpu), JSON_WANT_INT("memory_bytes", 0, INT64_MAX, &memory),
                   JSON_NEED_OBJECT("spec", &what)) < 0)
        return -1;
    if (build_spec_read(what, &build_spec_names, http_arena(c->req), spec, err) < 0)
        return err_prefix(err, "spec");
    request->cpu_milli = (uint32_t)cpu;
    request->memory_bytes = (uint64_t)memory;
    return 0;
}

static void build_step(struct call *c)
{
    struct template_request request = {0};
    struct build_spec spec;
    const char *id = c->state;
    if (call_ok(c, read_make(c, &request, &spec, &c->err)) &&
        call_ok(c, builder_start(native_of(c)->config.builder, &c->actor, id, &spec, &c->err)))
        call_value(c, 202, build_json(c, template_build_find(registry(c), c->actor.who.view, str_of(id))));
}

void native_builds_make(struct call *c)
{
    struct template_request request = {0};
    const struct template_build *build;
    struct build_spec spec;
    if (!builder_of(c))
        return;
    if (!call_ok(c, read_make(c, &request, &spec, &c->err)) ||
        !call_ok(c, core_template_request(call_core(c), &c->actor, &request, &build, &c->err)))
        return;
    c->state = arena_strdup(http_arena(c->req), build->id);
    call_step(c, build_step);
}

/* NULL: answered. */
static const struct template_build *find_build(struct call *c)
{
    const struct template_build *build = template_build_find(registry(c), c->actor.who.view, c->args[0]);
    if (!build)
        call_refuse(c, ERR_NOT_FOUND, "there is no build %.*s", STR_ARG_MAX(c->args[0], 64));
    return build;
}

void native_builds_get(struct call *c)
{
    const struct template_build *build = find_build(c);
    if (build)
        call_value(c, 200, build_json(c, build));
}

static void add_line(void *ctx, const struct template_log *line)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    (void)json_array_append_new(ctx, json_pack("{s:I,s:o?,s:s,s:o,s:o}", "seq", (json_int_t)line->seq, "at",
                                               call_time(line->at), "level", levels[line->level], "step",
                                               call_text(line->step), "message", call_text(line->message)));
}

void native_builds_log(struct call *c)
{
    uint64_t after = 0;
    const struct template_build *build = find_build(c);
    if (!build || call_query_u64(c, "after", &after) < 0)
        return;
    AUTO_JSON json_t *lines = json_array();
    if (call_ok(c,
                template_log_each(registry(c), build->id, TEMPLATE_DEBUG, after, LOG_LINES, add_line, lines, &c->err)))
        call_value(c, 200, json_pack("{s:o,s:O}", "build", build_json(c, build), "lines", lines));
}

void native_builds_cancel(struct call *c)
{
    struct builder *b = builder_of(c);
    const struct template_build *build = b ? find_build(c) : NULL;
    if (!build)
        return;
    if (call_ok(c, builder_cancel(b, &c->actor, build->id, &c->err)))
        call_empty(c, 204);
}

/* ---- uploads ---- */

static bool is_hash(struct call *c, char ret_name[static UPLOAD_HASH_LEN + 1])
{
    bool is = build_is_hash(c->args[0]);
    if (is)
        upload_name(c->actor.who.tenant, c->args[0].p, ret_name);
    else
        call_refuse(c, ERR_INVALID_ARGUMENT, "the name of an upload is 64 lower-case hexadecimal digits");
    return is;
}

void native_uploads_get(struct call *c)
{
    struct builder *builder = builder_of(c);
    char name[UPLOAD_HASH_LEN + 1];
    if (builder && is_hash(c, name))
        call_value(c, 200, json_pack("{s:b}", "present", uploads_has(builder_uploads(builder), name)));
}

void native_uploads_put(struct call *c)
{
    struct builder *builder = builder_of(c);
    char name[UPLOAD_HASH_LEN + 1];
    struct upload *up;
    if (!builder || !is_hash(c, name))
        return;
    if (!call_ok(c, builder_upload(builder, &c->actor, c->args[0], http_content_length(c->req), &c->err)) ||
        !call_ok(c, upload_begin(builder_uploads(builder), c->actor.who.tenant, name, http_content_length(c->req), &up,
                                 &c->err)))
        return;
    call_receive(c, up, 204);
}

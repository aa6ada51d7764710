/* SPDX-License-Identifier: Apache-2.0 */
/* Templates, their builds, and the files that builds are sent. */
#include "sandbox/templates.h"
#include "api/kit/receive.h"
#include "api/native/handlers.h"
#include "build/builder.h"
#include "template/builds.h"

enum { LIST_BYTES_MAX = 64 << 20, BUILD_BYTES_MAX = 256 * 1024, LOG_LINES = 500 };

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

static void append_made(struct buf *b, const struct core *core, const struct template *t)
{
    buf_printf(b, ",\"cpu_milli\":%u,\"memory_bytes\":%llu,\"size_bytes\":%llu", core_template_cpu_milli(core, t),
               (unsigned long long)core_template_memory_bytes(core, t), (unsigned long long)t->size_bytes);
    json_put_text(b, "start_cmd", t->start_cmd);
    json_put_text(b, "ready_cmd", t->ready_cmd);
    json_put_text(b, "user", t->user);
    json_put_text(b, "workdir", t->workdir);
}

static void append_template(struct buf *b, const struct core *core, const struct template_info *info)
{
    const struct template *made = info->file ? info->file : info->build ? info->build->made : NULL;
    json_open(b, "id", str_of(info->id));
    json_put_text(b, "name", info->name);
    json_put_text(b, "status", info->file ? "ready" : info->build ? status_name(info->build->status) : NULL);
    if (info->build && info->build->status == TEMPLATE_FAILED) {
        json_put_text(b, "reason", info->build->reason);
        json_put_text(b, "step", info->build->reason_step);
    }
    native_append_time(b, "created_at", info->created);
    native_append_time(b, "updated_at", info->updated);
    native_append_time(b, "spawned_at", info->spawned);
    buf_printf(b, ",\"spawns\":%llu,\"builds\":%zu,\"public\":%s,\"in_file\":%s,\"snapshot\":%s",
               (unsigned long long)info->n_spawns, info->n_builds, info->is_public ? "true" : "false",
               info->file ? "true" : "false", info->is_snapshot ? "true" : "false");
    if (made)
        append_made(b, core, made);
    buf_append_cstr(b, ",\"tags\":[");
    for (size_t i = 0; i < info->n_tags; i++) {
        json_open(b, "tag", str_of(info->tags[i].tag));
        json_put_text(b, "build", info->tags[i].build_id);
        native_append_time(b, "created_at", info->tags[i].created);
        buf_append_char(b, '}');
    }
    buf_append_cstr(b, "]}");
}

struct native_listing {
    struct buf b;
    const struct core *core;
};

static bool templates_list_one(void *ctx, const struct template_info *info)
{
    struct native_listing *l = ctx;
    if (!info->is_snapshot)
        append_template(&l->b, l->core, info);
    return true;
}

void native_templates_list(struct call *c)
{
    struct native_listing l = {.b = BUF_INIT(LIST_BYTES_MAX), .core = call_core(c)};
    struct template_info info;
    struct str ref;
    buf_append_cstr(&l.b, "{\"templates\":[");
    if (!call_query(c, "ref", &ref)) {
        template_info_each(registry(c), c->actor.who.view, templates_list_one, &l);
    } else if (!call_ok(c, template_info_find(registry(c), c->actor.who.view, ref, &info, &c->err))) {
        buf_fini(&l.b);
        return;
    } else {
        append_template(&l.b, l.core, &info);
    }
    buf_append_cstr(&l.b, "]}");
    call_json_buf(c, 200, &l.b);
    buf_fini(&l.b);
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
    const char *id = arena_strndup(http_arena(c->req), info.id, strlen(info.id));
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
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct templates_change *k = c->state;
    struct template_info info;
    struct err err;
    for (; k->n_done < 3; k->n_done++) {
        if (!call_ok(c, change_next(c, &c->err)))
            return;
    }
    if (!committed(c) || template_info_find(registry(c), c->actor.who.view, str_of(k->id), &info, &err) < 0)
        return;
    append_template(&b, call_core(c), &info);
    call_json_buf(c, 200, &b);
}

void native_templates_change(struct call *c)
{
    struct template_info info;
    struct str ref;
    if (!templates_look_up(c, &info) || !call_query(c, "ref", &ref))
        return;
    struct templates_change *k = call_state(c, sizeof(*k), NULL);
    *k = (struct templates_change){ref, arena_strndup(http_arena(c->req), info.id, strlen(info.id)), 0};
    call_step(c, change_step);
}

/* ---- builds ---- */

struct steps {
    struct buf *b;
    size_t n;
};

static void append_step(void *ctx, const struct build_step_size *size)
{
    struct steps *all = ctx;
    buf_printf(all->b, "%s{\"step\":\"%s\",\"cached\":%s,\"bytes\":", all->n++ ? "," : "", size->step,
               size->is_cached ? "true" : "false");
    if (size->is_known)
        buf_printf(all->b, "%llu}", (unsigned long long)size->bytes);
    else
        buf_append_cstr(all->b, "null}");
}

static void append_build(struct buf *b, const struct call *c, const struct template_build *build)
{
    struct steps steps = {b, 0};
    buf_printf(b, "{\"id\":\"%s\",\"template\":\"%s\",\"status\":\"%s\",\"lines\":%llu", build->id, build->template_id,
               status_name(build->status), (unsigned long long)build->n_logs);
    json_put_text(b, "reason", build->reason);
    json_put_text(b, "step", build->reason_step);
    native_append_time(b, "created_at", build->created);
    native_append_time(b, "started_at", build->started);
    native_append_time(b, "finished_at", build->finished);
    buf_append_cstr(b, ",\"steps\":[");
    if (native_of(c)->config.builder)
        builder_each_step(native_of(c)->config.builder, build->id, append_step, &steps);
    buf_append_cstr(b, "]}");
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
    AUTO_BUF struct buf b = BUF_INIT(BUILD_BYTES_MAX);
    struct template_request request = {0};
    struct build_spec spec;
    const char *id = c->state;
    if (!call_ok(c, read_make(c, &request, &spec, &c->err)) ||
        !call_ok(c, builder_start(native_of(c)->config.builder, &c->actor, id, &spec, &c->err)))
        return;
    append_build(&b, c, template_build_find(registry(c), c->actor.who.view, str_of(id)));
    call_json_buf(c, 202, &b);
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
    c->state = arena_strndup(http_arena(c->req), build->id, strlen(build->id));
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
    AUTO_BUF struct buf b = BUF_INIT(BUILD_BYTES_MAX);
    const struct template_build *build = find_build(c);
    if (!build)
        return;
    append_build(&b, c, build);
    call_json_buf(c, 200, &b);
}

static void append_line(void *ctx, const struct template_log *line)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    struct buf *b = ctx;
    json_put_comma(b);
    buf_printf(b, "{\"seq\":%llu", (unsigned long long)line->seq);
    json_put_time(b, "at", line->at, 3);
    json_put_text(b, "level", levels[line->level]);
    json_put_str(b, "step", line->step);
    json_put_str(b, "message", line->message);
    buf_append_char(b, '}');
}

void native_builds_log(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(LIST_BYTES_MAX);
    uint64_t after = 0;
    const struct template_build *build = find_build(c);
    if (!build || call_query_u64(c, "after", &after) < 0)
        return;
    buf_append_cstr(&b, "{\"build\":");
    append_build(&b, c, build);
    buf_append_cstr(&b, ",\"lines\":[");
    if (call_ok(
            c, template_log_each(registry(c), build->id, TEMPLATE_DEBUG, after, LOG_LINES, append_line, &b, &c->err))) {
        buf_append_cstr(&b, "]}");
        call_json_buf(c, 200, &b);
    }
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
    AUTO_BUF struct buf b = BUF_INIT(64);
    struct builder *builder = builder_of(c);
    char name[UPLOAD_HASH_LEN + 1];
    if (!builder || !is_hash(c, name))
        return;
    buf_printf(&b, "{\"present\":%s}", uploads_has(builder_uploads(builder), name) ? "true" : "false");
    call_json_buf(c, 200, &b);
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

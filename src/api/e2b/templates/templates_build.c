/* SPDX-License-Identifier: Apache-2.0 */
/* Building a template: request, upload of files, start, status with the log in pages. */
#include "api/e2b/templates/templates.h"
#include "api/kit/receive.h"
#include "sandbox/templates.h"

enum { LOG_PAGE_MAX = 100, CPUS_MAX = 1024, MEMORY_MB_MAX = 1 << 20, MEMORY_MB_LEAST = 128 };
enum { CPUS_DEFAULT = 2, MEMORY_MB_DEFAULT = 1024 }; /* of E2B; its SDKs send them */

static bool has_builder(struct call *c)
{
    if (!e2b_of(c)->builder)
        call_fail(c, 501, "template builds are not available here");
    return e2b_of(c)->builder != NULL;
}

/* ---- request ---- */

static void templates_build_add_tag(void *ctx, const char *tag)
{
    (void)json_array_append_new(ctx, json_string(tag));
}

static int read_request(struct call *c, const json_t *body, struct template_request *request, struct err *err)
{
    int64_t cpus = CPUS_DEFAULT, memory = MEMORY_MB_DEFAULT, disk = 0;
    if (JSON_WANTS_OF(body, http_arena(c->req), err, JSON_WANT_STR("alias", &request->name),
                      JSON_WANT_STR("name", &request->name), JSON_WANT_STRS("tags", &request->tags, &request->n_tags),
                      JSON_WANT_INT("cpuCount", 1, CPUS_MAX, &cpus),
                      JSON_WANT_INT("memoryMB", MEMORY_MB_LEAST, MEMORY_MB_MAX, &memory),
                      JSON_WANT_INT("minFreeDiskMb", 0, INT32_MAX, &disk)) < 0)
        return err_prefix(err, "Invalid request body");
    if (!request->name.n)
        return err_set(err, ERR_INVALID_ARGUMENT, "Name is required");
    if (memory % 2)
        return err_set(err, ERR_INVALID_ARGUMENT, "Memory must be divisible by 2");
    request->cpu_milli = (uint32_t)cpus * 1000;
    request->memory_bytes = (uint64_t)memory << 20;
    return 0;
}

void templates_request(struct call *c)
{
    struct template_request request = {0};
    const struct template_build *build;
    struct template_info info;
    if (!has_builder(c) || !call_ok(c, read_request(c, c->body, &request, &c->err)) ||
        !call_ok(c, core_template_request(call_core(c), &c->actor, &request, &build, &c->err)))
        return;
    AUTO_JSON json_t *tags = json_array(), *answer = json_pack("{s:s,s:s,s:O}", "templateID", build->template_id,
                                                               "buildID", build->id, "tags", tags);
    const char *id = arena_strdup(http_arena(c->req), build->template_id);
    template_build_tags(templates_of(c), build->id, templates_build_add_tag, tags);
    if (!templates_committed(c) || !templates_find(c, str_of(id), &info))
        return;
    (void)json_object_update_new(answer, json_pack("{s:o,s:o,s:b}", "names", templates_names(&info, false), "aliases",
                                                   templates_names(&info, true), "public", info.is_public));
    call_value(c, 202, json_incref(answer));
}

/* ---- uploads ---- */

static const char *scheme(const struct http_request *req)
{
    struct str forwarded = http_header_get(req, "x-forwarded-proto");
    return http_is_tls(req) || str_eq_nocase(forwarded, STR("https")) ? "https" : "http";
}

void templates_upload_link(struct call *c)
{
    char token[UPLOAD_TOKEN_LEN + 1];
    struct template_info info;
    if (!has_builder(c))
        return;
    if (!build_is_hash(c->args[1])) {
        call_fail(c, 400, "Invalid files hash");
        return;
    }
    if (!templates_find(c, c->args[0], &info))
        return;
    char hash[UPLOAD_HASH_LEN + 1];
    upload_name(c->actor.who.tenant, c->args[1].p, hash);
    struct str host = http_header_get(c->req, "host");
    struct uploads *uploads = builder_uploads(e2b_of(c)->builder);
    uploads_grant(uploads, c->actor.who.tenant, hash, token);
    const char *url = arena_printf(http_arena(c->req), "%s://%.*s/templates/%s/files/%s?token=%s", scheme(c->req),
                                   STR_ARG(host), info.id, hash, token);
    call_value(c, 201, json_pack("{s:b,s:o}", "present", uploads_has(uploads, hash), "url", call_cstr(url)));
}

int templates_upload_status(const struct err *err)
{
    return upload_is_full(err)                   ? 507
           : err->code == ERR_OUT_OF_RANGE       ? 413
           : err->code == ERR_PERMISSION_DENIED  ? 403
           : err->code == ERR_RESOURCE_EXHAUSTED ? 429
           : err->code == ERR_DEADLINE_EXCEEDED  ? 408
                                                 : 500;
}

void templates_upload(struct call *c)
{
    struct str token = STR_NULL;
    struct upload *up;
    if (!has_builder(c))
        return;
    if (http_query_get(c->req, "token", &token) != 1)
        token = STR_NULL;
    c->actor.name = "e2b:link";
    /* Nothing of it is there until its end, and who has no link leaves no record. */
    if (!call_ok(c, upload_begin_by_link(builder_uploads(e2b_of(c)->builder), c->args[1], token,
                                         http_content_length(c->req), &up, &c->err)))
        return;
    if (call_ok(c, builder_upload(e2b_of(c)->builder, &c->actor, c->args[1], http_content_length(c->req), &c->err)))
        call_receive(c, up, 200);
    else
        upload_cancel(up);
}

/* ---- start ---- */

/* The build that the route names; NULL: answered. */
static const struct template_build *find_build(struct call *c, int missing)
{
    struct template_info info;
    struct err ignored;
    const struct template_build *build = template_build_find(templates_of(c), c->actor.who.view, c->args[1]);
    if (build && !str_eqc(c->args[0], build->template_id)) {
        bool same = template_info_find(templates_of(c), c->actor.who.view, c->args[0], &info, &ignored) == 0 &&
                    strcmp(info.id, build->template_id) == 0;
        build = same ? template_build_find(templates_of(c), c->actor.who.view, c->args[1]) : NULL;
    }
    if (!build)
        call_fail(c, missing, "Build '%.*s' not found", STR_ARG_MAX(c->args[1], 64));
    return build;
}

void templates_start(struct call *c)
{
    static const struct build_spec_names names = {.image = "fromImage",
                                                  .template_ref = "fromTemplate",
                                                  .registry = "fromImageRegistry",
                                                  .start_cmd = "startCmd",
                                                  .ready_cmd = "readyCmd",
                                                  .files = "filesHash"};
    struct build_spec spec;
    struct err err;
    const struct template_build *build = has_builder(c) ? find_build(c, 404) : NULL;
    if (!build)
        return;
    const char *id = arena_strdup(http_arena(c->req), build->id);
    if (build_spec_read(c->body, &names, http_arena(c->req), &spec, &err) < 0)
        call_fail(c, err.code == ERR_UNIMPLEMENTED ? 501 : 400, "Invalid request body: %s", err.msg);
    else if (call_ok(c, builder_start(e2b_of(c)->builder, &c->actor, id, &spec, &c->err)))
        call_empty(c, 202);
}

/* ---- status ---- */

struct build_page {
    json_t *entries, *reasons; /* owned. The second: of the step that failed, warnings and worse */
    const char *step;
};

static json_t *build_entry(const struct template_log *line)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    char at[CLOCK_TEXT_MAX];
    clock_format(line->at, 6, at);
    return json_pack("{s:s,s:s,s:o,s:o*}", "timestamp", at, "level", levels[line->level], "message",
                     call_text(line->message), "step", line->step.n ? call_text(line->step) : NULL);
}

static void on_log(void *ctx, const struct template_log *line)
{
    const struct build_page *p = ctx;
    (void)json_array_append_new(p->entries, build_entry(line));
    if (p->step && line->level >= TEMPLATE_WARN && str_eqc(line->step, p->step))
        (void)json_array_append_new(p->reasons, build_entry(line));
}

/* False: answered. */
static bool read_page(struct call *c, const struct template_build *build, const char *offset_name, struct build_page *p)
{
    uint64_t offset = 0, limit = LOG_PAGE_MAX;
    int level = TEMPLATE_DEBUG;
    struct str value;
    int r = http_query_get(c->req, offset_name, &value);
    bool ok = r == 0 || (r == 1 && str_to_u64(value, &offset) == 0);
    r = http_query_get(c->req, "limit", &value);
    ok = ok && (r == 0 || (r == 1 && str_to_u64(value, &limit) == 0));
    r = http_query_get(c->req, "level", &value);
    if (r == 1)
        level = str_word(value, "debug info warn error");
    if (!ok || r < 0 || level < 0)
        return call_fail(c, 400, "Invalid format for parameter %s, limit or level", offset_name);
    p->step = build->reason_step;
    return build->status == TEMPLATE_WAITING ||
           call_ok(c, template_log_each(templates_of(c), build->id, (enum template_level)level, offset,
                                        MIN(limit, (uint64_t)LOG_PAGE_MAX), on_log, p, &c->err));
}

void templates_status(struct call *c)
{
    bool is_status = strcmp(c->route->what, "status") == 0;
    struct build_page p = {json_array(), json_array(), NULL};
    const struct template_build *build = find_build(c, 400);
    if (build && read_page(c, build, is_status ? "logsOffset" : "offset", &p)) {
        json_t *reason = build->reason ? json_pack("{s:o,s:o*,s:O*}", "message", call_cstr(build->reason), "step",
                                                   call_cstr(build->reason_step), "logEntries",
                                                   build->reason_step ? p.reasons : NULL)
                                       : NULL;
        call_value(c, 200,
                   is_status ? json_pack("{s:s,s:s,s:s,s:O,s:[],s:O*}", "templateID", build->template_id, "buildID",
                                         build->id, "status", templates_status_name(build->status), "logEntries",
                                         p.entries, "logs", "reason", reason)
                             : json_pack("{s:O}", "logs", p.entries));
        json_decref(reason);
    }
    json_decref(p.entries);
    json_decref(p.reasons);
}

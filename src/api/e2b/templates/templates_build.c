/* SPDX-License-Identifier: Apache-2.0 */
/* Building a template: request, upload of files, start, status with the log in pages. */
#include "api/e2b/templates/templates.h"
#include "sandbox/templates.h"

#include <inttypes.h>

enum { LOG_PAGE_MAX = 100, CPUS_MAX = 1024, MEMORY_MB_MAX = 1 << 20, MEMORY_MB_LEAST = 128 };
enum { CPUS_DEFAULT = 2, MEMORY_MB_DEFAULT = 1024 }; /* of E2B; its SDKs send them */

static bool has_builder(struct call *c)
{
    if (!e2b_of(c)->builder)
        call_fail(c, 501, "template builds are not available here");
    return e2b_of(c)->builder != NULL;
}

/* ---- request ---- */

struct tags {
    struct buf *b;
    size_t n;
};

static void append_tag(void *ctx, const char *tag)
{
    struct tags *t = ctx;
    if (t->n++)
        buf_append_char(t->b, ',');
    buf_append_json_string(t->b, str_of(tag));
}

static int read_request(struct call *c, const json_t *body, struct template_request *request, struct err *err)
{
    int64_t cpus = CPUS_DEFAULT, memory = MEMORY_MB_DEFAULT, disk = 0;
    if (json_get_str(body, "name", &request->name, err) < 0 ||
        (!request->name.p && json_get_str(body, "alias", &request->name, err) < 0) ||
        json_get_strs(body, "tags", http_arena(c->req), &request->tags, &request->n_tags, err) < 0 ||
        json_get_int(body, "cpuCount", 1, CPUS_MAX, &cpus, err) < 0 ||
        json_get_int(body, "memoryMB", MEMORY_MB_LEAST, MEMORY_MB_MAX, &memory, err) < 0 ||
        json_get_int(body, "minFreeDiskMb", 0, INT32_MAX, &disk, err) < 0)
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
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    struct template_request request = {0};
    const struct template_build *build;
    struct template_info info;
    struct err err;
    if (!has_builder(c))
        return;
    if (read_request(c, c->body, &request, &err) < 0 ||
        core_template_request(call_core(c), &c->actor, &request, &build, &err) < 0) {
        call_fail_err(c, &err);
        return;
    }
    buf_append_cstr(&b, "{\"templateID\":");
    buf_append_json_string(&b, str_of(build->template_id));
    buf_printf(&b, ",\"buildID\":\"%s\",\"tags\":[", build->id);
    const char *id = arena_strndup(http_arena(c->req), build->template_id, strlen(build->template_id));
    template_build_tags(templates_of(c), build->id, append_tag, &(struct tags){.b = &b});
    if (!templates_committed(c) || !templates_find(c, str_of(id), &info))
        return;
    buf_append_cstr(&b, "],");
    templates_append_names(&b, "names", &info, false);
    buf_append_char(&b, ',');
    templates_append_names(&b, "aliases", &info, true);
    buf_printf(&b, ",\"public\":%s}", info.is_public ? "true" : "false");
    call_json(c, 202, buf_str(&b));
}

/* ---- uploads ---- */

static const char *scheme(const struct http_request *req)
{
    struct str forwarded = http_header_get(req, "x-forwarded-proto");
    return http_is_tls(req) || str_eq_nocase(forwarded, STR("https")) ? "https" : "http";
}

void templates_upload_link(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
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
    uploads_grant(uploads, hash, token);
    AUTO_BUF struct buf url = BUF_INIT(4096);
    buf_printf(&url, "%s://%.*s/templates/%s/files/%s?token=%s", scheme(c->req), STR_ARG(host), info.id, hash, token);
    buf_printf(&b, "{\"present\":%s,\"url\":", uploads_has(uploads, hash) ? "true" : "false");
    buf_append_json_string(&b, buf_str(&url));
    buf_append_char(&b, '}');
    call_json(c, 201, buf_str(&b));
}

static void upload_gone(struct call *c)
{
    upload_cancel(c->state);
    c->state = NULL;
}

static void upload_failed(struct call *c, const struct err *err)
{
    if (call_lost(c, err->code))
        return;
    int status = upload_is_full(err)                   ? 507
                 : err->code == ERR_OUT_OF_RANGE       ? 413
                 : err->code == ERR_PERMISSION_DENIED  ? 403
                 : err->code == ERR_RESOURCE_EXHAUSTED ? 429
                 : err->code == ERR_DEADLINE_EXCEEDED  ? 408
                                                       : 500;
    upload_gone(c);
    call_fail(c, status, "%s", err->msg);
}

static void templates_build_on_data(struct http_request *req, struct str data, void *ctx)
{
    struct call *c = ctx;
    struct err err;
    (void)req;
    if (c->state && upload_write(c->state, data, &err) < 0)
        upload_failed(c, &err);
}

static void templates_build_on_end(struct http_request *req, void *ctx)
{
    struct call *c = ctx;
    struct upload *up = c->state;
    struct err err;
    (void)req;
    c->state = NULL;
    if (!up)
        return;
    if (upload_end(up, &err) < 0)
        upload_failed(c, &err);
    else
        call_empty(c, 200);
}

static void templates_build_on_error(struct http_request *req, int error, void *ctx)
{
    (void)req, (void)error;
    upload_gone(ctx);
}

static const struct http_body_ops body_ops = {
    .on_data = templates_build_on_data, .on_end = templates_build_on_end, .on_error = templates_build_on_error};

void templates_upload(struct call *c)
{
    struct str token = STR_NULL;
    struct upload *up;
    struct err err;
    if (!has_builder(c))
        return;
    if (http_query_get(c->req, "token", &token) != 1)
        token = STR_NULL;
    c->actor.name = "e2b:link";
    if (upload_begin_by_link(builder_uploads(e2b_of(c)->builder), c->args[1], token, http_content_length(c->req), &up,
                             &err) < 0) {
        upload_failed(c, &err);
        return;
    }
    c->state = up; /* nothing of it is there until its end, and who has no link leaves no record */
    if (builder_upload(e2b_of(c)->builder, &c->actor, c->args[1], http_content_length(c->req), &err) < 0) {
        upload_gone(c);
        upload_failed(c, &err);
        return;
    }
    c->cleanup = upload_gone;
    http_stream_body(c->req, &body_ops, c);
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
        call_fail(c, missing, "Build '%.*s' not found", (int)MIN(c->args[1].n, (size_t)64), c->args[1].p);
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
    const char *id = arena_strndup(http_arena(c->req), build->id, strlen(build->id));
    if (build_spec_read(c->body, &names, http_arena(c->req), &spec, &err) < 0) {
        call_fail(c, err.code == ERR_UNIMPLEMENTED ? 501 : 400, "Invalid request body: %s", err.msg);
        return;
    }
    if (builder_start(e2b_of(c)->builder, &c->actor, id, &spec, &err) < 0)
        call_fail_err(c, &err);
    else
        call_empty(c, 202);
}

/* ---- status ---- */

struct build_page {
    struct buf entries, reasons; /* the second: of the step that failed, warnings and worse */
    size_t n, n_reasons;
    const char *step;
};

static void build_append_entry(struct buf *b, size_t *n, const struct template_log *line)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    char at[CLOCK_TEXT_MAX];
    clock_format(line->at, 6, at);
    buf_printf(b, "%s{\"timestamp\":\"%s\",\"level\":\"%s\",\"message\":", (*n)++ ? "," : "", at, levels[line->level]);
    buf_append_json_string(b, line->message);
    if (line->step.n) {
        buf_append_cstr(b, ",\"step\":");
        buf_append_json_string(b, line->step);
    }
    buf_append_char(b, '}');
}

static void on_log(void *ctx, const struct template_log *line)
{
    struct build_page *p = ctx;
    build_append_entry(&p->entries, &p->n, line);
    if (p->step && line->level >= TEMPLATE_WARN && str_eqc(line->step, p->step))
        build_append_entry(&p->reasons, &p->n_reasons, line);
}

/* False: answered. */
static bool read_page(struct call *c, const struct template_build *build, const char *offset_name, struct build_page *p)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    uint64_t offset = 0, limit = LOG_PAGE_MAX;
    size_t level = TEMPLATE_DEBUG;
    struct str value;
    struct err err;
    int r = http_query_get(c->req, offset_name, &value);
    bool ok = r == 0 || (r == 1 && str_to_u64(value, &offset) == 0);
    r = http_query_get(c->req, "limit", &value);
    ok = ok && (r == 0 || (r == 1 && str_to_u64(value, &limit) == 0));
    r = http_query_get(c->req, "level", &value);
    if (r == 1)
        for (level = 0; level < ARRAY_SIZE(levels) && !str_eqc(value, levels[level]);)
            level++;
    if (!ok || r < 0 || level == ARRAY_SIZE(levels)) {
        call_fail(c, 400, "Invalid format for parameter %s, limit or level", offset_name);
        return false;
    }
    p->step = build->reason_step;
    if (build->status != TEMPLATE_WAITING &&
        template_log_each(templates_of(c), build->id, (enum template_level)level, offset,
                          MIN(limit, (uint64_t)LOG_PAGE_MAX), on_log, p, &err) < 0) {
        call_fail_err(c, &err);
        return false;
    }
    return true;
}

static void append_reason(struct buf *b, const struct template_build *build, struct build_page *p)
{
    buf_append_cstr(b, ",\"reason\":{\"message\":");
    buf_append_json_string(b, str_of(build->reason));
    if (build->reason_step) {
        buf_append_cstr(b, ",\"step\":");
        buf_append_json_string(b, str_of(build->reason_step));
        buf_append_cstr(b, ",\"logEntries\":[");
        buf_append_str(b, buf_str(&p->reasons));
        buf_append_char(b, ']');
    }
    buf_append_char(b, '}');
}

static void answer_page(struct call *c, bool is_status)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct build_page p = {.entries = BUF_INIT(REPLY_MAX / 4), .reasons = BUF_INIT(REPLY_MAX / 4)};
    const struct template_build *build = find_build(c, 400);
    if (build && read_page(c, build, is_status ? "logsOffset" : "offset", &p)) {
        buf_append_char(&b, '{');
        if (is_status) {
            buf_append_cstr(&b, "\"templateID\":");
            buf_append_json_string(&b, str_of(build->template_id));
            buf_printf(&b, ",\"buildID\":\"%s\",\"status\":\"%s\",\"logEntries\":[", build->id,
                       templates_status_name(build->status));
        } else {
            buf_append_cstr(&b, "\"logs\":[");
        }
        buf_append_str(&b, buf_str(&p.entries));
        buf_append_char(&b, ']');
        if (is_status)
            buf_append_cstr(&b, ",\"logs\":[]");
        if (is_status && build->reason)
            append_reason(&b, build, &p);
        buf_append_char(&b, '}');
        call_json_buf(c, 200, &b);
    }
    buf_fini(&p.entries);
    buf_fini(&p.reasons);
}

void templates_status(struct call *c)
{
    answer_page(c, true);
}

void templates_logs(struct call *c)
{
    answer_page(c, false);
}

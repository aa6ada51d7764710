/* SPDX-License-Identifier: Apache-2.0 */
/* Resources: cove://SANDBOX/log, what was done in it for people to read; cove://SANDBOX/files/PATH. */
#include "api/mcp/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/url.h"

#define SCHEME "cove://"
enum { LOG_LINES = 300 };

/* Lists hold for a moment alone: sandboxes come and go. */
static void resources_answer_list(struct call *c, const char *name, json_t *items)
{
    json_t *result = json_pack("{s:o}", name, items);
    if (mcp_call_of(c)->is_modern) {
        (void)json_object_set_new(result, "ttlMs", json_integer(0));
        (void)json_object_set_new(result, "cacheScope", json_string("private"));
    }
    rpc_result(c, result);
}

static bool resources_add(void *ctx, struct sandbox *sb)
{
    const char *id = sandbox_info(sb)->id;
    AUTO_FREE char *uri = mem_printf(SCHEME "%s/log", id), *name = mem_printf("Log of %s", id);
    if (!sandbox_info(sb)->hidden && json_array_size(ctx) < MCP_ITEMS_MAX)
        (void)json_array_append_new(ctx,
                                    json_pack("{s:s,s:s,s:s}", "uri", uri, "name", name, "mimeType", "text/plain"));
    return true;
}

void resources_list(struct call *c)
{
    json_t *all = json_array();
    access_each_sandbox(c, resources_add, all);
    resources_answer_list(c, "resources", all);
}

void resources_templates(struct call *c)
{
    resources_answer_list(c, "resourceTemplates",
                          json_pack("[{s:s,s:s,s:s,s:s},{s:s,s:s,s:s}]", "uriTemplate", SCHEME "{sandbox}/log", "name",
                                    "log", "description", "What was done in a sandbox, its latest lines", "mimeType",
                                    "text/plain", "uriTemplate", SCHEME "{sandbox}/files/{+path}", "name", "file",
                                    "description", "A file of a sandbox, by its absolute path"));
}

/* Of the request; terminated. */
static struct str resource_uri(const struct call *c)
{
    const json_t *uri = json_object_get(mcp_call_of(c)->params, "uri");
    return json_str(uri);
}

static void resource_missing(struct call *c, const char *why)
{
    struct str uri = resource_uri(c);
    rpc_error(c, mcp_call_of(c)->is_modern ? 400 : 200, RPC_PARAMS, json_pack("{s:o}", "uri", call_text(uri)), "%s",
              why);
}

static void resource_answer(struct call *c, const char *type, struct str text)
{
    bool is_text = str_is_utf8(text) && !str_has_nul(text);
    AUTO_BUF struct buf base64 = BUF_INIT(2 * MCP_FILE_MAX);
    if (!is_text)
        buf_append_base64(&base64, text);
    resources_answer_list(c, "contents",
                          json_pack("[{s:o,s:s,s:o}]", "uri", call_text(resource_uri(c)), "mimeType",
                                    is_text ? type : "application/octet-stream", is_text ? "text" : "blob",
                                    call_text(is_text ? text : buf_str(&base64))));
}

static bool log_line(void *ctx, usec_t at, const char *level, const char *logger, const char *message)
{
    char time[CLOCK_TEXT_MAX];
    clock_format(at, 3, time);
    AUTO_FREE char *line = mem_printf("%s %s %s: %s\n", time, level, logger, message);
    (void)json_array_insert_new(ctx, 0, call_text(str_of(line)));
    return true;
}

static void resource_log(struct call *c, struct str id)
{
    AUTO_BUF struct buf text = BUF_INIT(8 * MCP_FILE_MAX);
    AUTO_JSON json_t *lines = json_array();
    struct err err;
    if (sandbox_logs_back(call_core(c), id, 0, UINT64_MAX, LOG_LINES, log_line, lines, &err) < 0) {
        resource_missing(c, err.msg);
        return;
    }
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        buf_append_str(&text, json_str(line));
    }
    resource_answer(c, "text/plain", buf_str(&text));
}

static void resource_read_done(struct call *c, struct file_bytes *f)
{
    if (buf_len(&f->body.b) > MCP_FILE_MAX)
        resource_missing(c, "the file is larger than a resource may be: read it in parts, by file_read");
    else
        resource_answer(c, "text/plain", buf_str(&f->body.b));
}

void resources_read(struct call *c)
{
    struct str rest = resource_uri(c), id = STR(""), path;
    if (!str_starts(rest, STR(SCHEME))) {
        resource_missing(c,
                         "there is no such resource: they are " SCHEME "SANDBOX/log and " SCHEME "SANDBOX/files/PATH");
        return;
    }
    rest = str_sub(rest, strlen(SCHEME));
    bool is_log = str_split(&rest, '/', &id) && str_eqc(rest, "log");
    const char *known = id_is_sandbox(id) ? arena_str(http_arena(c->req), id).p : NULL;
    if (known && is_log && access_has_log(c, known)) {
        resource_log(c, str_of(known));
        return;
    }
    struct sandbox *sb = known ? access_find_sandbox(c, id) : NULL;
    if (!sb || sandbox_info(sb)->hidden || !str_starts(rest, STR("files/")) ||
        url_decode(http_arena(c->req), str_sub(rest, strlen("files/")), URL_PATH, &path) < 0 || !path.n ||
        str_has_nul(path)) {
        resource_missing(c, "there is no such resource");
        return;
    }
    if (!c->sandbox)
        c->sandbox = sandbox_ref(sb);
    struct file_bytes *f = arena_alloc(http_arena(c->req), sizeof(*f));
    *f = (struct file_bytes){.done = resource_read_done};
    path = str_of(arena_printf(http_arena(c->req), "%s%.*s", path.p[0] == '/' ? "" : "/", STR_ARG(path)));
    file_bytes_read(c, path, 0, MCP_FILE_MAX, f);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a sandbox. Bodies stream in both directions at the pace of the slower side. */
#include "api/kit/file_body.h"
#include "api/native/handlers.h"
#include "base/path.h"

enum { DEPTH_MAX = 64 };

/* user and path of the query; false: 400 was answered. */
static bool read_query(struct call *c, struct str *ret_user, struct str *ret_path)
{
    *ret_user = *ret_path = STR("");
    if (http_query_get(c->req, "path", ret_path) <= 0 || ret_path->n == 0)
        return call_refuse(c, ERR_INVALID_ARGUMENT, "path is missing");
    if (http_query_get(c->req, "user", ret_user) < 0 || str_has_nul(*ret_path) || str_has_nul(*ret_user) ||
        ret_path->n >= PATH_TEXT_MAX || ret_user->n > 255)
        return call_refuse(c, ERR_INVALID_ARGUMENT, "path or user is too long or malformed");
    return true;
}

/* What is one request about a path and one answer. */
static void answer_on_path(struct call *c,
                           int (*begin)(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
                                        file_entry_fn done, void *ctx, struct file_call **ret_call, struct err *err),
                           void (*then)(struct call *c, const struct file_entry *entry))
{
    struct str user, path;
    if (read_query(c, &user, &path))
        call_ok(c, begin(c->sandbox, &c->actor, user, path, CALL_FILE(c, then)));
}

static const char *type_name(enum wire_file_type type)
{
    return type == WIRE_FILE_REGULAR ? "file" : type == WIRE_FILE_DIRECTORY ? "directory" : "other";
}

static void native_files_append_entry(struct buf *b, const struct file_entry *e)
{
    json_open(b, "path", e->path);
    json_put_str(b, "name", e->name);
    buf_printf(b, ",\"type\":\"%s\",\"size\":%llu,\"mode\":\"%04o\",\"uid\":%u,\"gid\":%u", type_name(e->type),
               (unsigned long long)e->size, e->mode & 07777, e->uid, e->gid);
    json_put_str(b, "owner", e->owner);
    json_put_str(b, "group", e->group);
    json_put_time(b, "modified_at", e->mtime_ns / 1000, 6);
    if (e->is_link)
        json_put_str(b, "target", e->target);
    else
        json_put_text(b, "target", NULL);
    buf_append_char(b, '}');
}

/* x-cove-*: what a client needs to make the same file on its side. */
static size_t entry_headers(struct call *c, const struct file_entry *e, struct http_header ret_headers[static 5])
{
    struct arena *a = http_arena(c->req);
    ret_headers[0] = HTTP_HEADER("content-type", "application/octet-stream");
    ret_headers[1] = HTTP_HEADER_STR("x-cove-type", str_of(type_name(e->type)));
    ret_headers[2] = HTTP_HEADER_STR("x-cove-size", str_of(arena_printf(a, "%llu", (unsigned long long)e->size)));
    ret_headers[3] = HTTP_HEADER_STR("x-cove-mode", str_of(arena_printf(a, "%04o", e->mode & 07777)));
    ret_headers[4] =
        HTTP_HEADER_STR("x-cove-mtime-ns", str_of(arena_printf(a, "%llu", (unsigned long long)e->mtime_ns)));
    return 5;
}

/* ---- GET ---- */

/* The size is that of a moment ago and may have changed: the body is chunked. */
static void read_open(struct file_body *f, const struct file_entry *entry)
{
    struct http_header headers[5];
    size_t n = entry_headers(f->call, entry, headers);
    (void)http_response_begin(f->call->req, 200, headers, n, -1);
}

/* An archive has no size, and its end may come with a complaint of the tar that made it. */
static void pack_open(struct file_body *f, const struct file_entry *entry UNUSED)
{
    (void)http_response_begin(f->call->req, 200,
                              (struct http_header[]){HTTP_HEADER("content-type", "application/x-tar"),
                                                     HTTP_HEADER("trailer", "x-cove-error")},
                              2, -1);
}

static void pack_end(void *ctx, const struct err *err)
{
    struct file_body *f = ctx;
    if (!err || !http_response_begun(f->call->req)) {
        file_body_end(ctx, err);
        return;
    }
    struct err said = *err;
    for (char *p = said.msg; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    f->call->file = NULL;
    http_abort_saying(f->call->req, HTTP_HEADER_STR("x-cove-error", str_of(said.msg)));
}

void native_files_pack(struct call *c)
{
    static const struct file_read_ops ops = {file_body_opened, file_body_data, pack_end};
    struct str user, path;
    if (!read_query(c, &user, &path))
        return;
    struct file_body *f = file_body_new(c, NULL, pack_open);
    file_body_begun(f, file_pack(c->sandbox, &c->actor, user, path, false, FILE_BODY(f, &ops)));
}

void native_files_get(struct call *c)
{
    struct str user, path;
    uint64_t offset, length;
    if (!read_query(c, &user, &path) || call_query_u64(c, "offset", &offset) < 0 ||
        call_query_u64(c, "length", &length) < 0)
        return;
    struct file_body *f = file_body_new(c, NULL, read_open);
    file_body_begun(f, file_read(c->sandbox, &c->actor, user, path, offset, length ? length : UINT64_MAX,
                                 FILE_BODY(f, &file_body_out)));
}

/* ---- HEAD ---- */

static void head_done(struct call *c, const struct file_entry *entry)
{
    struct http_header headers[5];
    size_t n = entry_headers(c, entry, headers);
    (void)http_respond(c->req, 200, headers, n, STR_NULL);
}

void native_files_head(struct call *c)
{
    answer_on_path(c, file_stat, head_done);
}

/* ---- PUT ---- */

static void write_done(struct file_body *f, const struct file_entry *entry, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    if (err) {
        call_fail_err(f->call, err);
        return;
    }
    native_files_append_entry(&b, entry);
    call_json_buf(f->call, 200, &b);
}

void native_files_put(struct call *c)
{
    struct str user, path;
    if (!read_query(c, &user, &path))
        return;
    struct file_body *f = file_body_new(c, write_done, NULL);
    file_body_receive(f, file_write(c->sandbox, &c->actor, user, path, NULL, 0, FILE_BODY(f, &file_body_in)));
}

void native_files_unpack(struct call *c)
{
    struct str user, path;
    if (!read_query(c, &user, &path))
        return;
    struct file_body *f = file_body_new(c, write_done, NULL);
    file_body_receive(f, file_unpack(c->sandbox, &c->actor, user, path, FILE_BODY(f, &file_body_in)));
}

/* ---- DELETE ---- */

static void delete_done(struct call *c, const struct file_entry *entry UNUSED)
{
    call_empty(c, 204);
}

void native_files_delete(struct call *c)
{
    answer_on_path(c, file_remove, delete_done);
}

/* ---- entries ---- */

void native_begin_lines(struct call *c)
{
    if (!http_response_begun(c->req))
        (void)http_response_begin(c->req, 200,
                                  (struct http_header[]){HTTP_HEADER("content-type", "application/x-ndjson")}, 1, -1);
}

/* There is no credit here: a client that is too slow for the queue's maximum is cut. */
static void each_entry(void *ctx, const struct file_entry *entry)
{
    struct call *c = ctx;
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    native_files_append_entry(&b, entry);
    buf_append_char(&b, '\n');
    native_begin_lines(c);
    if (buf_error(&b) || http_response_write(c->req, buf_str(&b)) == -ENOBUFS)
        http_abort(c->req);
}

static void entries_done(struct call *c, const struct file_entry *entry UNUSED, const struct err *err)
{
    if (err && !http_response_begun(c->req)) {
        call_fail_err(c, err);
    } else if (err) {
        http_abort(c->req);
    } else {
        native_begin_lines(c);
        (void)http_response_end(c->req);
    }
}

void native_files_entries(struct call *c)
{
    struct str user, path;
    uint64_t depth;
    if (!read_query(c, &user, &path) || call_query_u64(c, "depth", &depth) < 0)
        return;
    if (depth > DEPTH_MAX)
        call_refuse(c, ERR_INVALID_ARGUMENT, "depth is larger than %d", DEPTH_MAX);
    else
        call_ok(c, file_list(c->sandbox, &c->actor, user, path, depth ? (uint32_t)depth : 1, each_entry,
                             CALL_FILE_END(c, entries_done)));
}

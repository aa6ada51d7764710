/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a sandbox. Bodies stream in both directions at the pace of the slower side. */
#include "sandbox/files/files.h"
#include "api/native/handlers.h"
#include "base/mem.h"
#include "base/path.h"

enum { DEPTH_MAX = 64 };

struct transfer {
    struct call *call;
    struct file_call *file;
    size_t unacked; /* GET: bytes that wait for the client */
    struct buf in;  /* PUT: what the agent has not taken yet; one body piece at most */
    bool body_ended, is_ready, eof_sent;
};

enum { IN_MAX = 256 * 1024 };

static void transfer_closed(struct call *c)
{
    struct transfer *t = c->state;
    if (t->file)
        file_call_cancel(t->file);
    t->file = NULL;
    buf_fini(&t->in);
    c->cleanup = NULL;
}

/* user and path of the query; false: 400 was answered. */
static bool read_query(struct call *c, struct str *ret_user, struct str *ret_path)
{
    struct str user = STR(""), path;
    int r = http_query_get(c->req, "path", &path);
    if (r <= 0 || path.n == 0) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "path is missing");
        return false;
    }
    if (http_query_get(c->req, "user", &user) < 0 || str_has_nul(path) || str_has_nul(user) ||
        path.n >= PATH_TEXT_MAX || user.n > 255) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "path or user is too long or malformed");
        return false;
    }
    *ret_user = user;
    *ret_path = path;
    return true;
}

static struct transfer *transfer_new(struct call *c)
{
    struct transfer *t = arena_alloc(http_arena(c->req), sizeof(*t));
    t->call = c;
    buf_init(&t->in, IN_MAX);
    return t;
}

/* A user that the sandbox doesn't have is a mistake in the query: who asks is known, and no key would help. */
static void native_files_fail(struct call *c, const struct err *err)
{
    struct str user = STR("");
    if (err->code != ERR_UNAUTHENTICATED) {
        call_fail_err(c, err);
        return;
    }
    if (http_query_get(c->req, "user", &user) <= 0 || user.n == 0)
        user = STR(WIRE_DEFAULT_USER);
    call_refuse(c, ERR_INVALID_ARGUMENT, "there is no user '%.*s' in the sandbox", STR_ARG(user));
}

/* The operation has begun: it ends with the request. Or it was refused, which is the answer. */
static void transfer_begun(struct transfer *t, int r, const struct err *err)
{
    if (r < 0) {
        t->file = NULL;
        native_files_fail(t->call, err);
        return;
    }
    t->call->state = t;
    t->call->cleanup = transfer_closed;
}

/* What is one request about a path and one answer. */
static void answer_on_path(struct call *c,
                           int (*begin)(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
                                        file_entry_fn done, void *ctx, struct file_call **ret_call, struct err *err),
                           file_entry_fn done)
{
    struct str user, path;
    struct err err;
    if (!read_query(c, &user, &path))
        return;
    struct transfer *t = transfer_new(c);
    transfer_begun(t, begin(c->sandbox, &c->actor, user, path, done, t, &t->file, &err), &err);
}

static const char *type_name(enum wire_file_type type)
{
    return type == WIRE_FILE_REGULAR ? "file" : type == WIRE_FILE_DIRECTORY ? "directory" : "other";
}

static void native_files_append_entry(struct buf *b, const struct file_entry *e)
{
    char mtime[CLOCK_TEXT_MAX];
    clock_format(e->mtime_ns / 1000, 6, mtime);
    buf_append_cstr(b, "{\"path\":");
    buf_append_json_string(b, e->path);
    buf_append_cstr(b, ",\"name\":");
    buf_append_json_string(b, e->name);
    buf_printf(b,
               ",\"type\":\"%s\",\"size\":%llu,\"mode\":\"%04o\",\"uid\":%u,\"gid\":%u,\"owner\":", type_name(e->type),
               (unsigned long long)e->size, e->mode & 07777, e->uid, e->gid);
    buf_append_json_string(b, e->owner);
    buf_append_cstr(b, ",\"group\":");
    buf_append_json_string(b, e->group);
    buf_printf(b, ",\"modified_at\":\"%s\",\"target\":", mtime);
    if (e->is_link)
        buf_append_json_string(b, e->target);
    else
        buf_append_cstr(b, "null");
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
static void read_open(void *ctx, const struct file_entry *entry)
{
    struct transfer *t = ctx;
    struct http_header headers[5];
    size_t n = entry_headers(t->call, entry, headers);
    (void)http_response_begin(t->call->req, 200, headers, n, -1);
}

static void read_data(void *ctx, struct str bytes)
{
    struct transfer *t = ctx;
    (void)http_response_write(t->call->req, bytes);
    if (call_is_full(t->call))
        t->unacked += bytes.n;
    else
        file_read_ack(t->file, bytes.n);
}

static void read_drain(struct http_request *req, void *ctx)
{
    (void)req;
    struct transfer *t = ctx;
    size_t n = t->unacked;
    t->unacked = 0;
    if (t->file && n > 0)
        file_read_ack(t->file, n);
}

static void read_end(void *ctx, const struct err *err)
{
    struct transfer *t = ctx;
    t->file = NULL;
    if (!err)
        (void)http_response_end(t->call->req);
    else if (!http_response_begun(t->call->req))
        native_files_fail(t->call, err);
    else
        http_abort(t->call->req); /* a cut body must not look whole */
}

static const struct file_read_ops read_ops = {read_open, read_data, read_end};

/* An archive has no size, and its end may come with a complaint of the tar that made it. */
static void pack_open(void *ctx, const struct file_entry *entry)
{
    struct transfer *t = ctx;
    (void)entry;
    (void)http_response_begin(t->call->req, 200,
                              (struct http_header[]){HTTP_HEADER("content-type", "application/x-tar"),
                                                     HTTP_HEADER("trailer", "x-cove-error")},
                              2, -1);
}

static void pack_end(void *ctx, const struct err *err)
{
    struct transfer *t = ctx;
    if (!err || !http_response_begun(t->call->req)) {
        read_end(ctx, err);
        return;
    }
    struct err said = *err;
    for (char *p = said.msg; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    t->file = NULL;
    http_abort_saying(t->call->req, HTTP_HEADER_STR("x-cove-error", str_of(said.msg)));
}

static const struct file_read_ops pack_ops = {pack_open, read_data, pack_end};

void native_files_pack(struct call *c)
{
    struct str user, path;
    struct err err;
    if (!read_query(c, &user, &path))
        return;
    struct transfer *t = transfer_new(c);
    http_on_drain(c->req, read_drain, t);
    transfer_begun(t, file_pack(c->sandbox, &c->actor, user, path, &pack_ops, t, &t->file, &err), &err);
}

void native_files_get(struct call *c)
{
    struct str user, path;
    uint64_t offset, length;
    struct err err;
    if (!read_query(c, &user, &path) || call_query_u64(c, "offset", &offset) < 0 ||
        call_query_u64(c, "length", &length) < 0)
        return;
    struct transfer *t = transfer_new(c);
    http_on_drain(c->req, read_drain, t);
    int r = file_read(c->sandbox, &c->actor, user, path, offset, length ? length : UINT64_MAX, &read_ops, t, &t->file,
                      &err);
    transfer_begun(t, r, &err);
}

/* ---- HEAD ---- */

static void head_done(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct transfer *t = ctx;
    struct http_header headers[5];
    t->file = NULL;
    if (err) {
        native_files_fail(t->call, err);
        return;
    }
    size_t n = entry_headers(t->call, entry, headers);
    (void)http_respond(t->call->req, 200, headers, n, STR_NULL);
}

void native_files_head(struct call *c)
{
    answer_on_path(c, file_stat, head_done);
}

/* ---- PUT ---- */

/* Gives the agent what it takes. What it doesn't stays in `in`, and the client waits. */
static void native_files_feed(struct transfer *t)
{
    while (t->is_ready && buf_len(&t->in) > 0) {
        size_t n = file_write_data(t->file, buf_str(&t->in));
        buf_consume(&t->in, n);
        if (n == 0)
            t->is_ready = false;
    }
    if (buf_len(&t->in) > 0 || !t->is_ready) {
        http_pause_body(t->call->req);
    } else if (!t->body_ended) {
        http_resume_body(t->call->req);
    } else if (!t->eof_sent) {
        t->eof_sent = true;
        file_write_eof(t->file);
    }
}

static void write_ready(void *ctx)
{
    struct transfer *t = ctx;
    t->is_ready = true;
    native_files_feed(t);
}

static void write_end(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct transfer *t = ctx;
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    t->file = NULL;
    if (err) {
        native_files_fail(t->call, err);
        return;
    }
    if (!t->eof_sent) {
        call_refuse(t->call, ERR_INTERNAL, "the sandbox ended the file before all of it was there");
        return;
    }
    native_files_append_entry(&b, entry);
    call_json_buf(t->call, 200, &b);
}

static const struct file_write_ops write_ops = {write_ready, write_end};

static void body_data(struct http_request *req, struct str data, void *ctx)
{
    struct transfer *t = ctx;
    if (!t->file) /* failed and answered */
        return;
    if (buf_append_str(&t->in, data) < 0)
        http_abort(req);
    else
        native_files_feed(t);
}

static void native_files_body_end(struct http_request *req, void *ctx)
{
    (void)req;
    struct transfer *t = ctx;
    t->body_ended = true;
    if (t->file)
        native_files_feed(t);
}

/* A client that left in the middle: on_close cancels the write, so that the file's end is not taken for its whole. */
static void body_error(struct http_request *req, int error, void *ctx)
{
    (void)req;
    (void)error;
    struct transfer *t = ctx;
    if (t->file)
        transfer_closed(t->call);
}

static const struct http_body_ops body_ops = {body_data, native_files_body_end, body_error};

static void write_begun(struct transfer *t, int r, const struct err *err)
{
    transfer_begun(t, r, err);
    if (r < 0)
        return;
    http_stream_body(t->call->req, &body_ops, t);
    http_pause_body(t->call->req); /* until the file is open */
}

void native_files_put(struct call *c)
{
    struct str user, path;
    struct err err;
    if (!read_query(c, &user, &path))
        return;
    struct transfer *t = transfer_new(c);
    write_begun(t, file_write(c->sandbox, &c->actor, user, path, NULL, 0, &write_ops, t, &t->file, &err), &err);
}

void native_files_unpack(struct call *c)
{
    struct str user, path;
    struct err err;
    if (!read_query(c, &user, &path))
        return;
    struct transfer *t = transfer_new(c);
    write_begun(t, file_unpack(c->sandbox, &c->actor, user, path, &write_ops, t, &t->file, &err), &err);
}

/* ---- DELETE ---- */

static void delete_done(void *ctx, const struct file_entry *entry, const struct err *err)
{
    (void)entry;
    struct transfer *t = ctx;
    t->file = NULL;
    if (err)
        native_files_fail(t->call, err);
    else
        call_empty(t->call, 204);
}

void native_files_delete(struct call *c)
{
    answer_on_path(c, file_remove, delete_done);
}

/* ---- entries ---- */

static void begin_entries(struct transfer *t)
{
    if (!http_response_begun(t->call->req))
        (void)http_response_begin(t->call->req, 200,
                                  (struct http_header[]){HTTP_HEADER("content-type", "application/x-ndjson")}, 1, -1);
}

/* There is no credit here: a client that is too slow for the queue's maximum is cut. */
static void each_entry(void *ctx, const struct file_entry *entry)
{
    struct transfer *t = ctx;
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    native_files_append_entry(&b, entry);
    buf_append_char(&b, '\n');
    begin_entries(t);
    if (buf_error(&b) || http_response_write(t->call->req, buf_str(&b)) == -ENOBUFS)
        http_abort(t->call->req);
}

static void entries_done(void *ctx, const struct file_entry *entry, const struct err *err)
{
    (void)entry;
    struct transfer *t = ctx;
    t->file = NULL;
    if (err && !http_response_begun(t->call->req)) {
        native_files_fail(t->call, err);
    } else if (err) {
        http_abort(t->call->req);
    } else {
        begin_entries(t);
        (void)http_response_end(t->call->req);
    }
}

void native_files_entries(struct call *c)
{
    struct str user, path;
    uint64_t depth;
    struct err err;
    if (!read_query(c, &user, &path) || call_query_u64(c, "depth", &depth) < 0)
        return;
    if (depth > DEPTH_MAX) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "depth is larger than %d", DEPTH_MAX);
        return;
    }
    struct transfer *t = transfer_new(c);
    int r = file_list(c->sandbox, &c->actor, user, path, depth ? (uint32_t)depth : 1, each_entry, entries_done, t,
                      &t->file, &err);
    transfer_begun(t, r, &err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of filesystem.Filesystem that answer once. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/envd_entry.h"
#include "api/e2b/envd/rpc.h"

enum { DEPTH_MAX = 1000 };

/* The string member, or "" when absent; false after answering when it is of another type. */
static bool get_path(struct call *c, const json_t *message, const char *name, struct str *ret_path)
{
    struct err err;

    *ret_path = STR("");
    if (json_get_str(message, name, ret_path, &err) >= 0)
        return true;
    rpc_fail(c, err.code, "unmarshal message: %s", err.msg);
    return false;
}

/* E2B's first SDKs for Python fail on a field that they don't know, and call themselves just so. */
static bool is_first_python(const struct call *c)
{
    return str_eqc(http_header_get(c->req, "user-agent"), "connect-python");
}

static void on_entry(void *ctx, const struct file_entry *entry, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);
    struct call *c = ctx;

    c->file = NULL;
    if (err) {
        rpc_fail_err(c, err);
        return;
    }
    buf_append_cstr(&b, "{\"entry\":");
    entry_append(&b, entry, is_first_python(c));
    buf_append_char(&b, '}');
    rpc_answer(c, &b);
}

static void stat_path(struct call *c, const json_t *message)
{
    struct str path;
    struct err err;

    if (get_path(c, message, "path", &path) &&
        file_stat(c->sandbox, &c->actor, c->user, path, on_entry, c, &c->file, &err) < 0)
        rpc_fail_err(c, &err);
}

void envd_stat(struct call *c)
{
    rpc_unary(c, stat_path);
}

static void envd_fs_make_dir(struct call *c, const json_t *message)
{
    struct str path;
    struct err err;

    if (get_path(c, message, "path", &path) &&
        file_make_dir(c->sandbox, &c->actor, c->user, path, on_entry, c, &c->file, &err) < 0)
        rpc_fail_err(c, &err);
}

void envd_make_dir(struct call *c)
{
    rpc_unary(c, envd_fs_make_dir);
}

static void move(struct call *c, const json_t *message)
{
    struct str source, destination;
    struct err err;

    if (get_path(c, message, "source", &source) && get_path(c, message, "destination", &destination) &&
        file_move(c->sandbox, &c->actor, c->user, source, destination, on_entry, c, &c->file, &err) < 0)
        rpc_fail_err(c, &err);
}

void envd_move(struct call *c)
{
    rpc_unary(c, move);
}

static void on_removed(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct call *c = ctx;

    (void)entry;
    c->file = NULL;
    if (err)
        rpc_fail_err(c, err);
    else
        call_json(c, 200, STR("{}"));
}

static void remove_path(struct call *c, const json_t *message)
{
    struct str path;
    struct err err;

    if (get_path(c, message, "path", &path) &&
        file_remove(c->sandbox, &c->actor, c->user, path, on_removed, c, &c->file, &err) < 0)
        rpc_fail_err(c, &err);
}

void envd_remove(struct call *c)
{
    rpc_unary(c, remove_path);
}

/* ---- ListDir ---- */

static void list_cleanup(struct call *c)
{
    buf_fini(c->state);
}

static void envd_fs_on_listed(void *ctx, const struct file_entry *entry)
{
    struct call *c = ctx;
    struct buf *b = c->state;

    buf_append_cstr(b, buf_len(b) == 0 ? "{\"entries\":[" : ",");
    entry_append(b, entry, is_first_python(c));
}

static void on_list_end(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct call *c = ctx;
    struct buf entries = *(struct buf *)c->state;

    (void)entry;
    c->file = NULL;
    c->cleanup = NULL;
    if (err) {
        rpc_fail_err(c, err);
    } else if (buf_error(&entries) < 0) {
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the listing is larger than %d MiB: use a smaller depth", REPLY_MAX >> 20);
    } else {
        buf_append_cstr(&entries, buf_len(&entries) ? "]}" : "{}");
        rpc_answer(c, &entries);
    }
    buf_fini(&entries);
}

static void list_dir(struct call *c, const json_t *message)
{
    int64_t depth = 1;
    struct str path;
    struct err err;

    if (!get_path(c, message, "path", &path))
        return;
    if (json_get_int(message, "depth", 0, UINT32_MAX, &depth, &err) < 0) {
        rpc_fail(c, err.code, "unmarshal message: %s", err.msg);
        return;
    }
    c->state = arena_alloc(http_arena(c->req), sizeof(struct buf));
    buf_init(c->state, REPLY_MAX);
    c->cleanup = list_cleanup;
    if (file_list(c->sandbox, &c->actor, c->user, path, (uint32_t)MIN(MAX(depth, (int64_t)1), (int64_t)DEPTH_MAX),
                  envd_fs_on_listed, on_list_end, c, &c->file, &err) < 0)
        rpc_fail_err(c, &err);
}

void envd_list_dir(struct call *c)
{
    rpc_unary(c, list_dir);
}

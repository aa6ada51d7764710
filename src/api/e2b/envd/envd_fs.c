/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of filesystem.Filesystem that answer once. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/envd_entry.h"
#include "api/e2b/envd/rpc.h"

enum { ENVD_FS_DEPTH_MAX = 1000 };

/* E2B's first SDKs for Python fail on a field that they don't know, and call themselves just so. */
static bool is_first_python(const struct call *c)
{
    return str_eqc(http_header_get(c->req, "user-agent"), "connect-python");
}

static void envd_fs_on_entry(struct call *c, const struct file_entry *entry)
{
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);
    buf_append_cstr(&b, "{\"entry\":");
    entry_append(&b, entry, is_first_python(c));
    buf_append_char(&b, '}');
    rpc_answer(c, &b);
}

void envd_stat(struct call *c)
{
    struct str path = STR("");
    if (CALL_WANTS(c, JSON_WANT_STR("path", &path)))
        call_ok(c, file_stat(c->sandbox, &c->actor, c->user, path, CALL_FILE(c, envd_fs_on_entry)));
}

void envd_make_dir(struct call *c)
{
    struct str path = STR("");
    if (CALL_WANTS(c, JSON_WANT_STR("path", &path)))
        call_ok(c, file_make_dir(c->sandbox, &c->actor, c->user, path, CALL_FILE(c, envd_fs_on_entry)));
}

void envd_move(struct call *c)
{
    struct str source = STR(""), destination = STR("");
    if (CALL_WANTS(c, JSON_WANT_STR("source", &source), JSON_WANT_STR("destination", &destination)))
        call_ok(c, file_move(c->sandbox, &c->actor, c->user, source, destination, CALL_FILE(c, envd_fs_on_entry)));
}

static void envd_fs_on_removed(struct call *c, const struct file_entry *entry UNUSED)
{
    call_json(c, 200, STR("{}"));
}

void envd_remove(struct call *c)
{
    struct str path = STR("");
    if (CALL_WANTS(c, JSON_WANT_STR("path", &path)))
        call_ok(c, file_remove(c->sandbox, &c->actor, c->user, path, CALL_FILE(c, envd_fs_on_removed)));
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
    size_t before = buf_len(b);
    if (c->answered)
        return;
    buf_append_cstr(b, before == 0 ? "{\"entries\":[" : ",");
    entry_append(b, entry, is_first_python(c));
    (void)call_takes(c, buf_len(b) - before);
}

static void on_list_end(struct call *c, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct buf entries = *(struct buf *)c->state;
    c->cleanup = NULL;
    if (err) {
        call_fail_err(c, err);
    } else if (buf_error(&entries) < 0) {
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the listing is larger than %d MiB: use a smaller depth", REPLY_MAX >> 20);
    } else {
        buf_append_cstr(&entries, buf_len(&entries) ? "]}" : "{}");
        rpc_answer(c, &entries);
    }
    buf_fini(&entries);
}

void envd_list_dir(struct call *c)
{
    int64_t depth = 1;
    struct str path = STR("");
    if (!CALL_WANTS(c, JSON_WANT_STR("path", &path), JSON_WANT_INT("depth", 0, UINT32_MAX, &depth)))
        return;
    buf_init(call_state(c, sizeof(struct buf), list_cleanup), REPLY_MAX);
    call_ok(c, file_list(c->sandbox, &c->actor, c->user, path,
                         (uint32_t)MIN(MAX(depth, (int64_t)1), (int64_t)ENVD_FS_DEPTH_MAX), envd_fs_on_listed,
                         CALL_FILE_END(c, on_list_end)));
}

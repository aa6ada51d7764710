/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *  1. A request opens the volume: a hidden sandbox of ours whose agent has it as the root of all paths. All that is
 *     done to it is done in there, as its root; absolute links begin at the volume's root, and what would lead above
 *     that stays there.
 *  2. The volume is let go of when the request is over, or, when that comes first, once it was opened.
 */
#include "api/e2b/volumes/volume_content.h"
#include "api/kit/file_body.h"
#include "base/path.h"
#include "http/client/connect.h"
#include "http/url.h"
#include "sandbox/volume/volumes.h"

#include <inttypes.h>

enum { VOLUME_CONTENT_DEPTH_MAX = 64 };

#define VOLUME_USER STR("root")

struct content {
    struct str path; /* as it was asked for, cleaned: "/" is the volume */
    bool force;
    int64_t uid, gid, mode, depth; /* -1: not given */
    int ok_status;
    struct sandbox *opened; /* the volume's; ours to release */
    struct buf listing;
    struct file_body body;
};

static struct content *content_of(struct call *c)
{
    return c->state;
}

int volume_content_status_of(const struct call *c, struct err *err)
{
    const struct content *k = c->state;
    if (k && err->code == ERR_NOT_FOUND)
        (void)err_set(err, ERR_NOT_FOUND, "path '%.*s' not found", STR_ARG_MAX(k->path, 200));
    return err->code == ERR_FAILED_PRECONDITION || err->code == ERR_ALREADY_EXISTS ? 409 : connect_status(err->code);
}

static void volume_content_cleanup(struct call *c)
{
    struct content *k = content_of(c);
    buf_fini(&k->listing);
    file_call_cancel(TAKE_PTR(c->file));
    if (k->opened) {
        volume_release(call_core(c), k->opened);
        sandbox_unref(k->opened);
    }
    k->opened = NULL;
}

/* ---- entries ---- */

/* Access and change times are not told by the agent: the time of the last change stands for them. */
static void volume_append_entry(struct buf *b, const struct file_entry *e)
{
    const char *type = e->is_link                       ? "symlink"
                       : e->type == WIRE_FILE_REGULAR   ? "file"
                       : e->type == WIRE_FILE_DIRECTORY ? "directory"
                                                        : "unknown";
    json_open(b, "name", e->path.n <= 1 ? STR("/") : e->name);
    json_put_text(b, "type", type);
    json_put_str(b, "path", e->path);
    buf_printf(b, ",\"size\":%" PRIu64 ",\"mode\":%u,\"uid\":%u,\"gid\":%u", e->size,
               (e->is_link ? e->link_mode : e->mode) & 07777, e->uid, e->gid);
    json_put_time(b, "atime", e->mtime_ns / 1000, 6);
    json_put_time(b, "mtime", e->mtime_ns / 1000, 6);
    json_put_time(b, "ctime", e->mtime_ns / 1000, 6);
    if (e->is_link)
        json_put_str(b, "target", e->target);
    buf_append_char(b, '}');
}

static void volume_content_on_entry(struct call *c, const struct file_entry *e)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    volume_append_entry(&b, e);
    call_json(c, content_of(c)->ok_status, buf_str(&b));
}

static void content_answer_entry(struct call *c)
{
    struct content *k = content_of(c);
    call_ok(c, file_stat(k->opened, &c->actor, VOLUME_USER, k->path, CALL_FILE(c, volume_content_on_entry)));
}

/* ---- owner, mode, directories ---- */

static void change(struct call *c, uint8_t flags)
{
    struct content *k = content_of(c);
    const struct file_change change = {
        .flags = (uint8_t)(flags | (k->uid >= 0 ? WIRE_CHANGE_UID : 0) | (k->gid >= 0 ? WIRE_CHANGE_GID : 0) |
                           (k->mode >= 0 ? WIRE_CHANGE_MODE : 0)),
        .uid = (uint32_t)MAX(k->uid, (int64_t)0),
        .gid = (uint32_t)MAX(k->gid, (int64_t)0),
        .mode = (uint32_t)MAX(k->mode, (int64_t)0),
    };
    call_ok(c, file_change(k->opened, &c->actor, VOLUME_USER, k->path, &change, CALL_FILE(c, volume_content_on_entry)));
}

static void content_change(struct call *c)
{
    const struct content *k = content_of(c);
    if (k->uid >= 0 || k->gid >= 0 || k->mode >= 0)
        change(c, 0);
    else
        content_answer_entry(c);
}

static void volume_content_make_dir(struct call *c)
{
    change(c, WIRE_CHANGE_MAKE | (content_of(c)->force ? WIRE_CHANGE_PARENTS : 0));
}

/* ---- files, out and in, at the pace of the slower side ---- */

static void transfer_open(struct file_body *f, const struct file_entry *entry UNUSED)
{
    (void)http_response_begin(f->call->req, 200, &HTTP_HEADER("content-type", "application/octet-stream"), 1, -1);
}

static void volume_download(struct call *c)
{
    struct content *k = content_of(c);
    k->body.open = transfer_open;
    file_body_begun(&k->body, file_read(k->opened, &c->actor, VOLUME_USER, k->path, 0, UINT64_MAX,
                                        FILE_BODY(&k->body, &file_body_out)));
}

static void transfer_written(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    if (err)
        call_fail_err(f->call, err);
    else
        call_step(f->call, content_change);
}

static void write_it(struct call *c)
{
    struct content *k = content_of(c);
    k->body.done = transfer_written;
    file_body_receive(
        &k->body, file_write(k->opened, &c->actor, VOLUME_USER, k->path, NULL, 0, FILE_BODY(&k->body, &file_body_in)));
}

static void on_looked(struct call *c, const struct file_entry *entry UNUSED, const struct err *err)
{
    if (!err)
        call_fail(c, 409, "the file exists; \"force\" replaces it");
    else if (err->code != ERR_NOT_FOUND)
        call_fail_err(c, err);
    else
        call_step(c, write_it);
}

static void volume_upload(struct call *c)
{
    if (content_of(c)->force)
        write_it(c);
    else
        call_ok(c, file_stat(content_of(c)->opened, &c->actor, VOLUME_USER, content_of(c)->path,
                             CALL_FILE_END(c, on_looked)));
}

/* ---- remove, list ---- */

static void volume_content_on_removed(struct call *c, const struct file_entry *e UNUSED)
{
    call_empty(c, 204);
}

static void remove_step(struct call *c)
{
    struct content *k = content_of(c);
    call_ok(c, file_remove(k->opened, &c->actor, VOLUME_USER, k->path, CALL_FILE(c, volume_content_on_removed)));
}

static void on_removing(struct call *c, const struct file_entry *e UNUSED)
{
    call_step(c, remove_step);
}

static void remove_it(struct call *c)
{
    struct content *k = content_of(c);
    /* Removing what is not there succeeds; here that is 404. */
    call_ok(c, file_stat(k->opened, &c->actor, VOLUME_USER, k->path, CALL_FILE(c, on_removing)));
}

static void on_each(void *ctx, const struct file_entry *e)
{
    struct call *c = ctx;
    struct buf *b = &content_of(c)->listing;
    size_t before = buf_len(b);
    if (c->answered)
        return;
    volume_append_entry(b, e);
    (void)call_takes(c, buf_len(b) - before);
}

static void volume_content_on_listed(struct call *c, const struct file_entry *e UNUSED)
{
    struct buf *b = &content_of(c)->listing;
    buf_append_char(b, ']');
    call_json_buf(c, 200, b);
}

static void volume_content_list(struct call *c)
{
    struct content *k = content_of(c);
    buf_append_char(&k->listing, '[');
    call_ok(c, file_list(k->opened, &c->actor, VOLUME_USER, k->path, (uint32_t)MAX(k->depth, (int64_t)1), on_each,
                         CALL_FILE(c, volume_content_on_listed)));
}

/* ---- the request ---- */

const struct route volume_routes[] = {
    {HTTP_METHOD_GET, "/volumecontent/{}/path", content_answer_entry, 0, NULL},
    {HTTP_METHOD_PATCH, "/volumecontent/{}/path", content_change, ROUTE_BODY_MAY, NULL},
    {HTTP_METHOD_DELETE, "/volumecontent/{}/path", remove_it, 0, NULL},
    {HTTP_METHOD_GET, "/volumecontent/{}/dir", volume_content_list, 0, NULL},
    {HTTP_METHOD_POST, "/volumecontent/{}/dir", volume_content_make_dir, 0, NULL},
    {HTTP_METHOD_GET, "/volumecontent/{}/file", volume_download, 0, NULL},
    {HTTP_METHOD_PUT, "/volumecontent/{}/file", volume_upload, 0, NULL},
};
const size_t volume_routes_n = ARRAY_SIZE(volume_routes);

static void volume_content_on_volume(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = ctx;
    if (!c->req) { /* its client has gone */
        if (sb) {
            volume_release(call_core(c), sb);
            sandbox_unref(sb);
        }
    } else if (err) {
        call_fail_err(c, err);
    } else {
        content_of(c)->opened = sb;
        call_step(c, c->route->handler);
    }
    call_unref(c);
}

/* False: answered. */
static bool volume_content_number(struct call *c, const char *name, uint64_t max, int64_t *ret_value)
{
    uint64_t number = 0;
    struct str value;
    *ret_value = -1;
    if (http_query_get(c->req, name, &value) != 1 || !value.n)
        return true;
    if (str_to_u64(value, &number) < 0 || number > max)
        return call_fail(c, 400, "parameter \"%s\" must be a number up to %" PRIu64, name, max);
    *ret_value = (int64_t)number;
    return true;
}

/* PATCH says in its body what the others say in the query. */
static void volume_content_begin(struct call *c)
{
    struct content *k = content_of(c);
    c->body_error = "";
    if (c->body) {
        k->uid = k->gid = k->mode = -1;
        if (!CALL_WANTS(c, JSON_WANT_INT("uid", 0, INT32_MAX, &k->uid), JSON_WANT_INT("gid", 0, INT32_MAX, &k->gid),
                        JSON_WANT_INT("mode", 0, 07777, &k->mode)))
            return;
    }
    call_held(c, volume_open(call_core(c), &c->actor, c->args[0], volume_content_on_volume, call_hold(c), &c->err));
}

static bool read_parameters(struct call *c)
{
    struct content *k = content_of(c);
    char clean[PATH_TEXT_MAX];
    struct str path, force;
    if (http_query_get(c->req, "path", &path) != 1 || !path.n || str_has_nul(path))
        return call_fail(c, 400, "parameter \"path\" is missing");
    if (path_clean(arena_str(http_arena(c->req), str_of(arena_printf(http_arena(c->req), "/%.*s", STR_ARG(path)))),
                   clean) < 0 ||
        strlen(clean) >= PATH_TEXT_MAX)
        return call_fail(c, 400, "parameter \"path\" is not a valid path");
    k->path = arena_str(http_arena(c->req), str_of(clean));
    k->force = http_query_get(c->req, "force", &force) == 1 && (str_eqc(force, "true") || str_eqc(force, "1"));
    return volume_content_number(c, "uid", INT32_MAX, &k->uid) && volume_content_number(c, "gid", INT32_MAX, &k->gid) &&
           volume_content_number(c, "mode", 07777, &k->mode) &&
           volume_content_number(c, "depth", VOLUME_CONTENT_DEPTH_MAX, &k->depth);
}

/* The token is the volume's own; a volume that is not there and a wrong token look alike. */
static bool may_use(struct call *c)
{
    const struct volume *v = volume_find(call_core(c), TENANT_ANY, c->args[0]);
    struct str given = http_header_get(c->req, "authorization");
    given = given.n > 7 && str_eq_nocase(str_n(given.p, 7), STR("bearer ")) ? str_trim(str_sub(given, 7)) : STR_NULL;
    if (v && given.n && str_eqc(c->args[0], v->id) && str_eq_secret(given, str_of(v->token))) {
        c->actor.who = (struct principal){.tenant = v->tenant, .view = v->tenant};
        return access_charge(c, v->tenant);
    }
    facade_note_refusal(c->facade, c->req, given.n ? REFUSAL_WRONG_TOKEN : REFUSAL_NO_TOKEN);
    return call_fail(c, 401, "the volume's token is missing or wrong");
}

bool volume_content_handle(struct e2b *e2b, struct http_request *req)
{
    struct str args[ROUTE_ARGS_MAX] = {STR_NULL};
    const struct route *route = NULL;
    enum route_result found =
        route_find(volume_routes, volume_routes_n, http_method(req), http_raw_path(req), &route, args, NULL);
    struct content *k;
    struct call *c;
    if (!str_starts(http_raw_path(req), STR("/volumecontent/")))
        return false;
    c = call_new(&e2b->facade, req, "e2b:volume");
    if (found == ROUTE_FOUND && route->method != http_method(req))
        found = ROUTE_WRONG_METHOD; /* HEAD */
    if (found != ROUTE_FOUND) {
        call_fail(c, found == ROUTE_UNKNOWN ? 404 : 405, "%s",
                  found == ROUTE_UNKNOWN ? "there is no such route" : "method not allowed");
        return true;
    }
    c->route = route;
    if (url_decode(http_arena(req), args[0], URL_PATH, &c->args[0]) < 0 || str_has_nul(c->args[0])) {
        call_fail(c, 400, "validation error: malformed path");
        return true;
    }
    if (!may_use(c))
        return true;
    k = call_state(c, sizeof(*k), volume_content_cleanup);
    buf_init(&k->listing, REPLY_MAX);
    k->body.call = c;
    k->ok_status = route->method == HTTP_METHOD_POST || route->method == HTTP_METHOD_PUT ? 201 : 200;
    if (read_parameters(c))
        call_read(c, volume_content_begin);
    return true;
}

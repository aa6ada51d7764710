/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of execd, as root. What the core's own file operations don't have - owners by name, batches that end at the
 * first failure - is a small shell script inside, which exits with 44 when something is not there.
 */
#include "api/kit/file_body.h"
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "base/path.h"
#include "http/url.h"

#include <fnmatch.h>

enum { DEPTH_MAX = 64, FOUND_MAX = 20000, REPLACE_MAX = 1 << 20, VARIABLES_MAX = 8 };
enum { SCRIPT_NOT_FOUND = 44 };
#define HOME "/root"

/* ---- entries ---- */

/* 0755 is 755 here. */
static uint32_t mode_out(uint32_t mode)
{
    return (mode >> 6 & 7) * 100 + (mode >> 3 & 7) * 10 + (mode & 7) + (mode >> 9 & 7) * 1000;
}

static const char *type_name(const struct file_entry *e)
{
    if (e->is_link)
        return "symlink";
    return e->type == WIRE_FILE_REGULAR ? "file" : e->type == WIRE_FILE_DIRECTORY ? "directory" : "other";
}

static json_t *entry_json(const struct file_entry *e)
{
    usec_t at = e->mtime_ns / 1000;
    return json_pack("{s:o,s:s,s:I,s:o*,s:o*,s:o,s:o,s:I}", "path", json_stringn_nocheck(e->path.p, e->path.n), "type",
                     type_name(e), "size", (json_int_t)e->size, "modified_at", call_time(at), "created_at",
                     call_time(at), "owner", json_stringn_nocheck(e->owner.p, e->owner.n), "group",
                     json_stringn_nocheck(e->group.p, e->group.n), "mode",
                     (json_int_t)mode_out(e->is_link ? e->link_mode : e->mode));
}

struct str files_path(struct call *c, struct str path)
{
    AUTO_BUF struct buf b = BUF_INIT(PATH_TEXT_MAX);
    const struct sandbox_info *info = sandbox_info(c->sandbox);
    size_t n_variables = 0;
    if (path.n >= PATH_TEXT_MAX)
        return STR_NULL;
    if (path.n && path.p[0] == '~' && (path.n == 1 || path.p[1] == '/')) {
        buf_append_cstr(&b, HOME);
        path = str_sub(path, 1);
    }
    for (ssize_t at; (at = str_find_char(path, '$')) >= 0;) {
        buf_append_str(&b, str_n(path.p, (size_t)at));
        path = str_sub(path, (size_t)at + 1);
        bool is_braced = path.n && path.p[0] == '{';
        path = str_sub(path, is_braced);
        size_t n = str_span(path, "A-Za-z0-9_"), i = info->n_envs;
        struct str name = str_n(path.p, n), value = str_eqc(name, "HOME") ? STR(HOME) : STR_NULL;
        if (++n_variables > VARIABLES_MAX)
            return STR_NULL;
        while (i && !str_eq(info->envs[i - 1].key, name))
            i--;
        value = i ? info->envs[i - 1].value : value;
        if (!value.p || (is_braced && (n == path.n || path.p[n] != '}')))
            return STR_NULL;
        buf_append_str(&b, value);
        path = str_sub(path, n + is_braced);
    }
    buf_append_str(&b, path);
    return buf_error(&b) < 0 ? STR_NULL : arena_str(http_arena(c->req), buf_str(&b));
}

/* The time that one request takes of all others' is bounded. */
static bool paths_fit(struct call *c, size_t n)
{
    if (n > FILES_PATHS_MAX)
        call_fail(c, 400, "more than %d paths", FILES_PATHS_MAX);
    return n <= FILES_PATHS_MAX;
}

struct str files_query_path(struct call *c)
{
    struct str path;
    if (call_query(c, "path", &path) && !str_has_nul(path) && (path = files_path(c, path)).n)
        return path;
    opensandbox_fail(c, 400, "MISSING_QUERY", "path is missing");
    return STR_NULL;
}

/* All values of a parameter that may stand there several times. -1: answered. */
static int query_paths(struct call *c, const struct str **ret_paths, size_t *ret_n)
{
    struct arena *a = http_arena(c->req);
    struct str *paths = arena_alloc(a, FILES_PATHS_MAX * sizeof(*paths)), rest = http_query(c->req);
    size_t n = 0;
    for (struct url_param p; url_query_next(&rest, &p);) {
        if (!str_eqc(p.name, "path"))
            continue;
        if (n == FILES_PATHS_MAX || !p.value.n || url_decode(a, p.value, URL_QUERY, &paths[n]) < 0 ||
            str_has_nul(paths[n]) || !(paths[n] = files_path(c, paths[n])).n) {
            call_fail(c, 400, "path: too many, too long or malformed");
            return -1;
        }
        n++;
    }
    *ret_paths = paths;
    *ret_n = n;
    return 0;
}

/* ---- several, one after the other ---- */

struct info {
    const struct str *paths;
    size_t n, i;
    json_t *found;
};

static void info_closed(struct call *c)
{
    json_decref(((struct info *)c->state)->found);
}

static void info_next(struct call *c);

static void info_one(struct call *c, const struct file_entry *entry)
{
    struct info *f = c->state;
    (void)json_object_setn_new(f->found, f->paths[f->i].p, f->paths[f->i].n, entry_json(entry));
    f->i++;
    call_step(c, info_next);
}

static void info_next(struct call *c)
{
    struct info *f = c->state;
    if (f->i == f->n)
        call_value(c, 200, json_incref(f->found));
    else
        call_ok(c, file_stat(c->sandbox, &c->actor, STR("root"), f->paths[f->i], CALL_FILE(c, info_one)));
}

static void files_info(struct call *c)
{
    struct info *f = call_state(c, sizeof(*f), info_closed);
    if (query_paths(c, &f->paths, &f->n) < 0)
        return;
    f->found = json_object();
    info_next(c);
}

/* ---- scripts ---- */

void files_script_done(struct call *c, uint32_t code, struct str output)
{
    if (code == 0)
        call_empty(c, 200);
    else
        call_fail(c, code == SCRIPT_NOT_FOUND ? 404 : 500, "%.*s", STR_ARG_MAX(output, 500));
}

static void remove_paths(struct call *c)
{
    const struct str *paths;
    size_t n;
    if (query_paths(c, &paths, &n) == 0)
        script_run(c, c->route->what, paths, n, files_script_done);
}

/* {"path": {owner, group, mode}} as four arguments each. */
const struct str *files_permissions(struct call *c, const char *path, const json_t *one, struct str *to)
{
    struct arena *a = http_arena(c->req);
    int64_t mode = 0;
    to[0] = files_path(c, str_of(path));
    to[1] = to[2] = to[3] = STR("");
    if (!json_is_object(one) || !to[0].n) {
        call_fail(c, 400, "'%.100s': it is {\"owner\", \"group\", \"mode\"}", path);
        return NULL;
    }
    if (!call_ok(c,
                 json_wants(one,
                            (const struct json_want[]){JSON_WANT_STR("owner", &to[1]), JSON_WANT_STR("group", &to[2]),
                                                       JSON_WANT_INT("mode", 0, 7777, &mode)},
                            3, a, false, &c->err)))
        return NULL;
    for (int64_t m = mode; m; m /= 10)
        if (m % 10 > 7) {
            call_fail(c, 400, "mode %lld must have octal digits", (long long)mode);
            return NULL;
        }
    to[1] = arena_str(a, to[1]); /* the body may be gone before the script runs */
    to[2] = arena_str(a, to[2]);
    if (mode)
        to[3] = str_of(arena_printf(a, "%lld", (long long)mode));
    return to;
}

static void set_permissions(struct call *c)
{
    size_t n = 0;
    struct str *args = arena_alloc(http_arena(c->req), (4 * json_object_size(c->body) + 1) * sizeof(*args));
    if (!paths_fit(c, json_object_size(c->body)))
        return;
    JSON_FOREACH_MEMBER (path, one, c->body) {
        if (!files_permissions(c, path, one, &args[n]))
            return;
        n += 4;
    }
    script_run(c, c->route->what, args, n, files_script_done);
}

static void move_files(struct call *c)
{
    struct str *args = arena_alloc(http_arena(c->req), (2 * json_array_size(c->body) + 1) * sizeof(*args));
    size_t n = 0;
    if (!paths_fit(c, json_array_size(c->body)))
        return;
    JSON_FOREACH (one, c->body) {
        struct str from = STR(""), to = STR("");
        if (!json_is_object(one) ||
            JSON_WANTS(one, NULL, &c->err, JSON_NEED_STR("src", &from), JSON_NEED_STR("dest", &to)) < 0)
            break;
        args[n++] = files_path(c, from);
        args[n++] = files_path(c, to);
        if (!args[n - 2].n || !args[n - 1].n) {
            call_fail(c, 400, "a path is malformed, or has a variable that isn't known");
            return;
        }
    }
    if (!c->body || n < 2 * json_array_size(c->body))
        call_fail(c, 400, "the body is a list of {\"src\", \"dest\"}");
    else
        script_run(c, c->route->what, args, n, files_script_done);
}

/* ---- lists ---- */

struct osb_listing {
    json_t *found;
    struct str path;
    uint32_t depth;
    struct str pattern; /* p NULL: all, directories too */
};

static void listing_closed(struct call *c)
{
    json_decref(((struct osb_listing *)c->state)->found);
}

static void list_each(void *ctx, const struct file_entry *e)
{
    struct call *c = ctx;
    struct osb_listing *l = c->state;
    if (l->pattern.p) {
        AUTO_FREE char *name = mem_strndup(e->name.p, e->name.n);
        if ((e->type == WIRE_FILE_DIRECTORY && !e->is_link) || fnmatch(l->pattern.p, name, 0) != 0)
            return;
    }
    if (json_array_size(l->found) < FOUND_MAX)
        (void)json_array_append_new(l->found, entry_json(e));
}

static void list_done(struct call *c, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct osb_listing *l = c->state;
    if (err)
        call_fail(c, err->code == ERR_NOT_FOUND ? 404 : 400, "%s", err->msg);
    else
        call_value(c, 200, json_incref(l->found));
}

static void list_begin(struct call *c)
{
    const struct osb_listing *l = c->state;
    call_ok(c,
            file_list(c->sandbox, &c->actor, STR("root"), l->path, l->depth, list_each, CALL_FILE_END(c, list_done)));
}

/* What a link leads to is not listed. */
static void list_found(struct call *c, const struct file_entry *entry, const struct err *err)
{
    if (err || entry->is_link) {
        list_done(c, NULL, err ? err : &(struct err){.code = ERR_INVALID_ARGUMENT, .msg = "it is a symbolic link"});
        return;
    }
    call_step(c, list_begin);
}

static void list_directory(struct call *c, struct str pattern, uint64_t depth)
{
    struct osb_listing *l = call_state(c, sizeof(*l), listing_closed);
    *l = (struct osb_listing){
        .found = json_array(), .pattern = pattern, .depth = (uint32_t)MIN(depth, (uint64_t)DEPTH_MAX)};
    l->path = files_query_path(c);
    if (l->path.n && depth == 0)
        call_json(c, 200, STR("[]"));
    else if (l->path.n && pattern.p)
        list_begin(c);
    else if (l->path.n)
        call_ok(c, file_stat(c->sandbox, &c->actor, STR("root"), l->path, CALL_FILE_END(c, list_found)));
}

static void list_files(struct call *c)
{
    uint64_t depth = 1;
    if (http_query_get(c->req, "depth", &(struct str){0}) == 0 || call_query_u64(c, "depth", &depth) == 0)
        list_directory(c, STR_NULL, depth);
}

static void search_files(struct call *c)
{
    struct str pattern = STR("**");
    (void)call_query(c, "pattern", &pattern);
    list_directory(c, arena_str(http_arena(c->req), pattern), DEPTH_MAX);
}

/* ---- replacing ---- */

struct replacing {
    json_t *body, *answer; /* owned */
    void *it;
    struct str old, new;
    struct file_body in;
    struct buf changed;
    uint64_t count;
    bool is_verbose;
};

static void replace_closed(struct call *c)
{
    struct replacing *r = c->state;
    json_decref(r->answer);
    file_body_fini(&r->in);
    buf_fini(&r->changed);
}

static void replace_next(struct call *c);

static void replace_written(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct replacing *r = container_of(f, struct replacing, in);
    if (err) {
        call_fail_err(f->call, err);
        return;
    }
    r->it = json_object_iter_next(f->call->body, r->it);
    call_step(f->call, replace_next);
}

static struct str replace_path(const struct replacing *r)
{
    return files_path(r->in.call, str_of(json_object_iter_key(r->it)));
}

static void replace_write(struct call *c)
{
    struct replacing *r = c->state;
    r->in.done = replace_written;
    r->in.bytes = buf_str(&r->changed);
    r->in.given = 0;
    file_body_begun(&r->in, file_write(c->sandbox, &c->actor, STR("root"), replace_path(r), NULL, 0,
                                       FILE_BODY(&r->in, &file_body_bytes)));
}

static void replace_read(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct replacing *r = container_of(f, struct replacing, in);
    struct call *c = f->call;
    struct str rest = buf_str(&f->b);
    if (err || buf_error(&f->b)) {
        if (err)
            call_fail_err(c, err);
        else
            call_fail(c, 500, "the file is too large to be edited here");
        return;
    }
    buf_clear(&r->changed);
    r->count = 0;
    for (const char *at; rest.n && (at = memmem(rest.p, rest.n, r->old.p, r->old.n)); r->count++) {
        (void)buf_append_str(&r->changed, str_n(rest.p, (size_t)(at - rest.p)));
        (void)buf_append_str(&r->changed, r->new);
        rest = str_sub(rest, (size_t)(at - rest.p) + r->old.n);
    }
    (void)buf_append_str(&r->changed, rest);
    (void)json_object_set_new(r->answer, json_object_iter_key(r->it),
                              json_pack("{s:I}", "replacedCount", (json_int_t)r->count));
    if (!r->count) {
        r->it = json_object_iter_next(c->body, r->it);
        call_step(c, replace_next);
    } else if (buf_error(&r->changed)) {
        call_fail(c, 500, "the file would become too large to edit here");
    } else {
        call_step(c, replace_write);
    }
}

static void replace_next(struct call *c)
{
    struct replacing *r = c->state;
    struct err err;
    if (!r->it) {
        if (r->is_verbose)
            call_value(c, 200, json_incref(r->answer));
        else
            call_empty(c, 200);
        return;
    }
    const json_t *one = json_object_iter_value(r->it);
    r->old = r->new = STR("");
    buf_clear(&r->in.b);
    if (!json_is_object(one) || !replace_path(r).n ||
        JSON_WANTS(one, NULL, &err, JSON_NEED_STR("old", &r->old), JSON_WANT_STR("new", &r->new)) < 0) {
        call_fail(c, 400, "'%.100s': it is {\"old\", \"new\"}, and \"old\" is not empty", json_object_iter_key(r->it));
        return;
    }
    r->in.done = replace_read;
    file_body_begun(&r->in, file_read(c->sandbox, &c->actor, STR("root"), replace_path(r), 0, REPLACE_MAX + 1,
                                      FILE_BODY(&r->in, &file_body_text)));
}

static void replace_files(struct call *c)
{
    struct replacing *r = call_state(c, sizeof(*r), replace_closed);
    r->it = json_object_iter(c->body);
    file_body_init(&r->in, c, REPLACE_MAX);
    buf_init(&r->changed, 2 * REPLACE_MAX);
    if (!paths_fit(c, json_object_size(c->body)) || call_query_bool(c, "verbose", &r->is_verbose) < 0)
        return;
    r->answer = json_object();
    replace_next(c);
}

const struct route file_routes[] = {
    {HTTP_METHOD_GET, "/files/info", files_info, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/files", remove_paths, ROUTE_SANDBOX,
     "for p; do [ ! -d \"$p\" ] || [ -L \"$p\" ] || { echo \"$p is a directory\"; exit 1; }; rm -f -- \"$p\" || exit 1; done"},
    {HTTP_METHOD_POST, "/files/permissions", set_permissions, ROUTE_BODY | ROUTE_SANDBOX,
     "while [ $# -gt 3 ]; do [ -e \"$1\" ] || { echo \"$1 isn't there\"; exit 44; }; " FILES_APPLY "shift 4; done"},
    {HTTP_METHOD_POST, "/files/mv", move_files, ROUTE_LIST | ROUTE_SANDBOX,
     "while [ $# -gt 1 ]; do [ -e \"$1\" ] || [ -L \"$1\" ] || { echo \"$1 isn't there\"; exit 44; }; "
     "[ ! -e \"$2\" ] || { echo \"$2 is there already\"; exit 1; }; "
     "mkdir -p -- \"$(dirname -- \"$2\")\" && mv -- \"$1\" \"$2\" || exit 1; shift 2; done"},
    {HTTP_METHOD_GET, "/files/search", search_files, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/files/replace", replace_files, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/files/upload", transfer_upload, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/files/download", transfer_download, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_GET, "/directories/list", list_files, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/directories", set_permissions, ROUTE_BODY | ROUTE_SANDBOX,
     "while [ $# -gt 3 ]; do [ -d \"$1\" ] || { mkdir -p -- \"$1\" || exit 1; " FILES_APPLY "}; shift 4; done"},
    {HTTP_METHOD_DELETE, "/directories", remove_paths, ROUTE_SANDBOX, "rm -rf -- \"$@\""},
};
const size_t file_n_routes = ARRAY_SIZE(file_routes);

/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a container as tar streams: the sandbox's own tar makes them and takes them apart. */
#include "api/docker/handlers.h"
#include "api/kit/file_body.h"
#include "base/path.h"

#include <sys/stat.h>

/* path of the query, of a container that runs; false: answered. */
static bool archive_read_query(struct call *c, struct str *ret_path)
{
    if (!docker_box_running(c))
        return false;
    if (call_query(c, "path", ret_path) && ret_path->n && ret_path->n < PATH_TEXT_MAX && !str_has_nul(*ret_path))
        return true;
    return call_refuse(c, ERR_INVALID_ARGUMENT, "path is missing or too long");
}

/* Of Go's os.FileMode. */
static uint32_t archive_mode(const struct file_entry *e)
{
    return (e->link_mode & 0777) |
           (e->is_link         ? 1U << 27
            : S_ISDIR(e->mode) ? 1U << 31
                               : 0) |
           (e->link_mode & S_ISUID ? 1U << 23 : 0) | (e->link_mode & S_ISGID ? 1U << 22 : 0) |
           (e->link_mode & S_ISVTX ? 1U << 20 : 0);
}

static void archive_add_stat(struct call *c, const struct file_entry *e)
{
    AUTO_BUF struct buf json = BUF_INIT(64 * 1024), text = BUF_INIT(96 * 1024);
    json_open(&json, "name", e->name);
    buf_printf(&json, ",\"size\":%llu,\"mode\":%u", (unsigned long long)e->size, archive_mode(e));
    json_put_time(&json, "mtime", e->mtime_ns / 1000, 6);
    json_put_str(&json, "linkTarget", e->is_link ? e->target : STR(""));
    buf_append_char(&json, '}');
    buf_append_base64(&text, buf_str(&json));
    http_add_header(c->req, STR("x-docker-container-path-stat"), buf_str(&text));
}

static void archive_failed(struct call *c, const struct err *err)
{
    struct str path = STR("");
    (void)call_query(c, "path", &path);
    if (err->code == ERR_NOT_FOUND)
        call_refuse(c, ERR_NOT_FOUND, "Could not find the file %.*s in container %s", (int)MIN(path.n, (size_t)200),
                    path.p, sandbox_info(c->sandbox)->id);
    else
        call_fail_err(c, err);
}

/* ---- HEAD ---- */

static void archive_head_done(struct call *c, const struct file_entry *entry, const struct err *err)
{
    if (err) {
        archive_failed(c, err);
        return;
    }
    archive_add_stat(c, entry);
    call_empty(c, 200);
}

void docker_archive_head(struct call *c)
{
    struct str path;
    if (archive_read_query(c, &path))
        call_ok(c, file_stat(c->sandbox, &c->actor, STR("root"), path, CALL_FILE_END(c, archive_head_done)));
}

/* ---- GET, PUT ---- */

static void archive_done(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    if (err)
        archive_failed(f->call, err);
    else
        call_empty(f->call, 200);
}

static void archive_open(struct file_body *f, const struct file_entry *entry)
{
    archive_add_stat(f->call, entry);
    (void)http_response_begin(f->call->req, 200,
                              (struct http_header[]){HTTP_HEADER("content-type", "application/x-tar")}, 1, -1);
}

void docker_archive_get(struct call *c)
{
    struct str path;
    if (!archive_read_query(c, &path))
        return;
    struct file_body *f = file_body_new(c, archive_done, archive_open);
    file_body_begun(f, file_pack(c->sandbox, &c->actor, STR("root"), path, true, FILE_BODY(f, &file_body_out)));
}

void docker_archive_put(struct call *c)
{
    struct str path;
    if (!archive_read_query(c, &path))
        return;
    struct file_body *f = file_body_new(c, archive_done, NULL);
    file_body_receive(f, file_unpack(c->sandbox, &c->actor, STR("root"), path, FILE_BODY(f, &file_body_in)));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Content of files on its way, at the pace of the slower side: downloads by ranges of bytes or of lines, uploads in
 * pairs of parts. */
#include "api/kit/file_body.h"
#include "api/kit/range.h"
#include "api/kit/upload_queue.h"
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "http/multipart.h"

enum { PART_METADATA_MAX = 64 * 1024 };

/* ---- downloads ---- */

struct transfer_download {
    struct file_body f;
    struct str path;
    uint64_t from, length, line, first, last; /* lines are counted from 1; first 0: bytes */
    bool is_range;
};

/* Lines, joined by \n: the break stands before each but the first. */
static void download_lines(void *ctx, struct str bytes)
{
    struct transfer_download *d = container_of(ctx, struct transfer_download, f);
    struct call *c = d->f.call;
    for (size_t i = 0, from = 0; i <= bytes.n; i++) {
        bool is_break = i < bytes.n && bytes.p[i] == '\n', is_in = d->line >= d->first && d->line <= d->last;
        if (i < bytes.n && !is_break)
            continue;
        size_t n = i - from - (is_break && i > from && bytes.p[i - 1] == '\r');
        if (is_in && n)
            (void)http_response_write(c->req, str_n(bytes.p + from, n));
        if (is_break && is_in && d->line < d->last)
            (void)http_response_write(c->req, STR("\n"));
        d->line += is_break;
        from = i + 1;
    }
    call_paced(c, bytes.n);
}

static void download_open(struct file_body *f, const struct file_entry *entry UNUSED)
{
    const struct transfer_download *d = container_of(f, struct transfer_download, f);
    const struct http_header headers[] = {
        HTTP_HEADER_STR("content-type", d->first ? STR("text/plain; charset=utf-8") : STR("application/octet-stream")),
        HTTP_HEADER("content-disposition", "attachment"), HTTP_HEADER("accept-ranges", "bytes")};
    (void)http_response_begin(f->call->req, d->is_range ? 206 : 200, headers, ARRAY_SIZE(headers),
                              d->first ? -1 : (int64_t)d->length);
}

static void download_read(struct call *c)
{
    static const struct file_read_ops lines = {file_body_opened, download_lines, file_body_end};
    struct transfer_download *d = c->state;
    d->f.open = download_open;
    file_body_begun(&d->f, file_read(c->sandbox, &c->actor, STR("root"), d->path, d->from, d->length,
                                     FILE_BODY(&d->f, d->first ? &lines : &file_body_out)));
}

static void download_found(struct call *c, const struct file_entry *e)
{
    struct transfer_download *d = c->state;
    struct str range = d->first ? STR_NULL : http_header_get(c->req, "range"); /* of several the first */
    struct range part;
    if (e->type != WIRE_FILE_REGULAR) {
        call_fail(c, 400, "'%.*s' is not a regular file", STR_ARG_MAX(e->path, 200));
        return;
    }
    d->length = e->size;
    d->is_range = range.n;
    if (range.n && (!e->size || !str_starts(range, STR("bytes=")) ||
                    range_one(str_trim(str_before(str_sub(range, 6), ',')), e->size, &part) <= 0)) {
        http_add_header(c->req, STR("content-range"), range_content(http_arena(c->req), NULL, e->size));
        call_fail(c, 416, "the range is not satisfiable");
        return;
    }
    if (range.n) {
        d->from = part.offset;
        d->length = part.length;
        http_add_header(c->req, STR("content-range"), range_content(http_arena(c->req), &part, e->size));
    }
    call_step(c, download_read);
}

void transfer_download(struct call *c)
{
    struct transfer_download *d = call_state(c, sizeof(*d), NULL);
    uint64_t first, count;
    file_body_init(&d->f, c, 0);
    d->line = 1;
    if (call_query_u64(c, "offset", &first) < 0 || call_query_u64(c, "limit", &count) < 0)
        return;
    d->path = files_query_path(c);
    if (!d->path.n)
        return;
    if ((first || count) && http_header_get(c->req, "range").n) {
        call_fail(c, 400, "a range of bytes and one of lines exclude each other");
        return;
    }
    if (first || count) {
        d->first = MAX(first, (uint64_t)1);
        d->last = count && count < UINT64_MAX - d->first ? d->first + count - 1 : UINT64_MAX;
    }
    call_ok(c, file_stat(c->sandbox, &c->actor, STR("root"), d->path, CALL_FILE(c, download_found)));
}

/* ---- uploads ---- */

struct transfer_upload {
    struct multipart *parser; /* owned */
    struct buf metadata;      /* of the part that comes */
    struct str *args;         /* four for each file: path, owner, group, mode */
    size_t n_files, max_files;
    enum { PART_OTHER, PART_METADATA, PART_FILE } part;
    bool has_metadata, is_ended;
};

static void upload_closed(struct call *c)
{
    struct transfer_upload *u = c->state;
    multipart_free(u->parser);
    buf_fini(&u->metadata);
}

static int upload_part(const struct multipart_part *part, void *ctx)
{
    struct call *c = ctx;
    struct transfer_upload *u = c->state;
    u->part = str_eqc(part->name, "metadata") ? PART_METADATA : str_eqc(part->name, "file") ? PART_FILE : PART_OTHER;
    if (u->part == PART_METADATA && u->has_metadata) {
        opensandbox_fail(c, 400, "INVALID_FILE_METADATA", "each metadata part is followed by its file");
        return -ECANCELED;
    }
    if (u->part != PART_FILE)
        return 0;
    if (!u->has_metadata) {
        opensandbox_fail(c, 400, "INVALID_FILE", "each file part follows its metadata part");
        return -ECANCELED;
    }
    u->has_metadata = false;
    upload_queue_begin(c->uploads, u->args[4 * (u->n_files - 1)]);
    return c->answered ? -ECANCELED : 0;
}

static int upload_bytes(struct str data, void *ctx)
{
    struct call *c = ctx;
    struct transfer_upload *u = c->state;
    if (u->part == PART_FILE)
        upload_queue_data(c->uploads, data);
    return u->part == PART_METADATA ? buf_append_str(&u->metadata, data) : 0;
}

/* Grows the arguments by the part's. */
static int upload_metadata(struct call *c)
{
    struct transfer_upload *u = c->state;
    AUTO_JSON json_t *json = NULL;
    struct str path = STR("");
    struct err err;
    if (u->n_files == FILES_PATHS_MAX || json_read_object(buf_str(&u->metadata), false, &json, &err) < 0 ||
        json_get_str(json, "path", &path, &err) < 0 || !(path = files_path(c, path)).n) {
        opensandbox_fail(c, 400, "INVALID_FILE_METADATA", "metadata is JSON with a path");
        return -ECANCELED;
    }
    if (u->n_files == u->max_files) {
        size_t max = MAX(2 * u->max_files, (size_t)8);
        struct str *more = arena_alloc(http_arena(c->req), 4 * max * sizeof(*more));
        if (u->n_files)
            memcpy(more, u->args, 4 * u->n_files * sizeof(*more));
        u->args = more;
        u->max_files = max;
    }
    AUTO_FREE char *text = mem_strndup(path.p, path.n);
    if (!files_permissions(c, text, json, &u->args[4 * u->n_files]))
        return -ECANCELED;
    u->n_files++;
    u->has_metadata = true;
    buf_clear(&u->metadata);
    return 0;
}

static int upload_part_end(void *ctx)
{
    struct call *c = ctx;
    struct transfer_upload *u = c->state;
    if (u->part == PART_METADATA)
        return upload_metadata(c);
    if (u->part == PART_FILE)
        upload_queue_end(c->uploads);
    return 0;
}

/* All of it is written: owners and modes. */
static void upload_apply(struct call *c)
{
    struct transfer_upload *u = c->state;
    script_run(c, "while [ $# -gt 3 ]; do " FILES_APPLY "shift 4; done", u->args, 4 * u->n_files, files_script_done);
}

static void upload_advance(struct call *c)
{
    struct transfer_upload *u = c->state;
    if (c->answered)
        return;
    if (!u->is_ended && upload_queue_is_busy(c->uploads)) {
        http_pause_body(c->req);
    } else if (!u->is_ended) {
        http_resume_body(c->req);
    } else if (upload_queue_is_empty(c->uploads) && !c->is_held) {
        call_step(c, upload_apply);
    }
}

static void transfer_upload_data(struct call *c, struct str data)
{
    struct transfer_upload *u = c->state;
    if (multipart_feed(u->parser, data) < 0 && !c->answered)
        call_fail(c, 400, "the multipart body is malformed");
    upload_advance(c);
}

static void transfer_upload_end(struct call *c)
{
    struct transfer_upload *u = c->state;
    u->is_ended = true;
    if (multipart_end(u->parser) < 0 || u->has_metadata || !u->n_files)
        call_fail(c, 400, "the multipart body lacks a file for a metadata part, or its end");
    upload_advance(c);
}

void transfer_upload(struct call *c)
{
    static const struct multipart_ops parts = {upload_part, upload_bytes, upload_part_end};
    static const struct upload_queue_ops queue = {.on_idle = upload_advance};
    static const struct call_body_ops body = {transfer_upload_data, transfer_upload_end};
    struct transfer_upload *u = call_state(c, sizeof(*u), upload_closed);
    if (multipart_new(http_header_get(c->req, "content-type"), &parts,
                      &(struct multipart_limits){.parts = 2 * FILES_PATHS_MAX}, c, &u->parser) < 0) {
        call_fail(c, 400, "the body must be multipart/form-data");
        return;
    }
    buf_init(&u->metadata, PART_METADATA_MAX);
    upload_queue_make(c, STR("root"), NULL, 0, &queue);
    call_stream_body(c, &body);
}

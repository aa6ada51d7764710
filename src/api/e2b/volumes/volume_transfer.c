/* SPDX-License-Identifier: Apache-2.0 */
/* Files of volumes, out and in, at the pace of the slower side. */
#include "api/e2b/volumes/volume_call.h"
#include "api/kit/upload_queue.h"

#include "base/fd.h"

/* ---- out ---- */

static void on_open(void *ctx, const struct file_entry *e)
{
    struct call *c = ctx;

    (void)e;
    http_response_begin(c->req, 200, &HTTP_HEADER("content-type", "application/octet-stream"), 1, -1);
}

static void on_data(void *ctx, struct str bytes)
{
    struct call *c = ctx;
    struct content *k = content_of(c);

    http_response_write(c->req, bytes);
    if (http_response_full(c->req))
        k->unacked += bytes.n;
    else if (c->file)
        file_read_ack(c->file, bytes.n);
}

static void on_drain(struct http_request *req, void *ctx)
{
    struct call *c = ctx;
    struct content *k = content_of(c);
    size_t n = k->unacked;

    (void)req;
    k->unacked = 0;
    if (c->file && n)
        file_read_ack(c->file, n);
}

static void on_read(void *ctx, const struct err *err)
{
    struct call *c = ctx;

    c->file = NULL;
    if (err && !http_response_begun(c->req)) {
        content_fail(c, err);
    } else if (err) {
        http_abort(c->req);
        call_done(c);
    } else {
        call_done(c);
        http_response_end(c->req);
    }
}

static const struct file_read_ops read_ops = {on_open, on_data, on_read};

void volume_download(struct call *c)
{
    struct content *k = content_of(c);
    struct err err;

    http_on_drain(c->req, on_drain, c);
    if (file_read(k->opened, &c->actor, VOLUME_USER, k->path, 0, UINT64_MAX, &read_ops, c, &c->file, &err) < 0)
        content_fail(c, &err);
}

/* ---- in ---- */

static void feed(struct call *c)
{
    struct content *k = content_of(c);

    while (k->is_ready && buf_len(&k->in)) {
        size_t n = file_write_data(c->file, buf_str(&k->in));

        buf_consume(&k->in, n);
        k->is_ready = n > 0;
    }
    if (buf_len(&k->in) || !k->is_ready) {
        http_pause_body(c->req);
    } else if (!k->body_ended) {
        http_resume_body(c->req);
    } else if (!k->eof_sent) {
        k->eof_sent = true;
        file_write_eof(c->file);
    }
}

static void on_ready(void *ctx)
{
    struct call *c = ctx;

    content_of(c)->is_ready = true;
    feed(c);
}

static void on_written(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct call *c = ctx;

    (void)entry;
    c->file = NULL;
    if (err)
        content_fail(c, err);
    else if (!content_of(c)->eof_sent)
        call_fail(c, 500, FILES_ENDED_EARLY);
    else
        call_step(c, content_change);
}

static const struct file_write_ops write_ops = {on_ready, on_written};

static void body_data(struct http_request *req, struct str data, void *ctx)
{
    struct call *c = ctx;

    if (!c->file)
        return; /* it failed, and was answered */
    if (buf_append_str(&content_of(c)->in, data) < 0)
        http_abort(req);
    else
        feed(c);
}

static void body_end(struct http_request *req, void *ctx)
{
    struct call *c = ctx;

    (void)req;
    content_of(c)->body_ended = true;
    if (c->file)
        feed(c);
}

/* A client that left in the middle: the file's end must not be taken for its whole. */
static void body_error(struct http_request *req, int error, void *ctx)
{
    struct call *c = ctx;

    (void)req;
    (void)error;
    if (c->file)
        file_call_cancel(TAKE_PTR(c->file));
}

static const struct http_body_ops body_ops = {body_data, body_end, body_error};

static void write_it(struct call *c)
{
    struct err err;

    if (file_write(content_of(c)->opened, &c->actor, VOLUME_USER, content_of(c)->path, NULL, 0, &write_ops, c, &c->file,
                   &err) < 0) {
        content_fail(c, &err);
        return;
    }
    http_stream_body(c->req, &body_ops, c);
    http_pause_body(c->req); /* until the file is open */
}

static void on_looked(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct call *c = ctx;

    (void)entry;
    c->file = NULL;
    if (!err)
        call_fail(c, 409, "there is a file already; \"force\" replaces it");
    else if (err->code != ERR_NOT_FOUND)
        content_fail(c, err);
    else
        call_step(c, write_it);
}

void volume_upload(struct call *c)
{
    struct err err;

    if (content_of(c)->force)
        write_it(c);
    else if (file_stat(content_of(c)->opened, &c->actor, VOLUME_USER, content_of(c)->path, on_looked, c, &c->file,
                       &err) < 0)
        content_fail(c, &err);
}

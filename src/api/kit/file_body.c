/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/file_body.h"

/* What the sandbox has not taken yet: a piece of the body, and what was left of the one before. */
enum { FILE_BODY_IN_MAX = 256 * 1024 };

struct file_body *
file_body_new(struct call *c, void (*done)(struct file_body *f, const struct file_entry *entry, const struct err *err),
              void (*open)(struct file_body *f, const struct file_entry *entry))
{
    struct file_body *f = call_state(c, sizeof(*f), NULL);
    *f = (struct file_body){.call = c, .done = done, .open = open};
    return f;
}

void file_body_init(struct file_body *f, struct call *c, size_t max)
{
    *f = (struct file_body){.call = c, .b = BUF_INIT(max)};
}

void file_body_fini(struct file_body *f)
{
    buf_fini(&f->b);
}

static void body_done(struct file_body *f, const struct file_entry *entry, const struct err *err)
{
    f->call->file = NULL;
    if (f->done)
        f->done(f, entry, err);
    else if (err)
        call_fail_err(f->call, err);
}

void file_body_begun(struct file_body *f, int r)
{
    if (r < 0 && f->call->err.reason == ERR_HELD)
        call_fail_err(f->call, &f->call->err); /* it is parked, and begins again once it may */
    else if (r < 0)
        body_done(f, NULL, &f->call->err);
}

/* ---- into memory ---- */

static void text_open(void *ctx, const struct file_entry *entry)
{
    struct file_body *f = ctx;
    f->size = entry->size;
}

static void text_data(void *ctx, struct str bytes)
{
    struct file_body *f = ctx;
    (void)buf_append_str(&f->b, bytes);
    file_read_ack(f->call->file, bytes.n);
}

static void text_end(void *ctx, const struct err *err)
{
    body_done(ctx, NULL, err);
}

const struct file_read_ops file_body_text = {text_open, text_data, text_end};

/* ---- as a response ---- */

void file_body_opened(void *ctx, const struct file_entry *entry)
{
    struct file_body *f = ctx;
    call_pace(f->call, NULL);
    f->open(f, entry);
}

void file_body_data(void *ctx, struct str bytes)
{
    struct file_body *f = ctx;
    (void)http_response_write(f->call->req, bytes);
    call_paced(f->call, bytes.n);
}

void file_body_end(void *ctx, const struct err *err)
{
    struct file_body *f = ctx;
    struct call *c = f->call;
    if (err && !http_response_begun(c->req)) {
        body_done(f, NULL, err);
        return;
    }
    c->file = NULL;
    call_done(c);
    if (err)
        http_abort(c->req); /* a cut body must not look whole */
    else
        (void)http_response_end(c->req);
}

const struct file_read_ops file_body_out = {file_body_opened, file_body_data, file_body_end};

/* ---- from memory ---- */

static void bytes_ready(void *ctx)
{
    struct file_body *f = ctx;
    while (f->given < f->bytes.n) {
        size_t n = file_write_data(f->call->file, str_sub(f->bytes, f->given));
        if (!n)
            return;
        f->given += n;
    }
    file_write_eof(f->call->file);
}

static void bytes_end(void *ctx, const struct file_entry *entry, const struct err *err)
{
    body_done(ctx, entry, err);
}

const struct file_write_ops file_body_bytes = {bytes_ready, bytes_end};

/* ---- from a request ---- */

/* Gives the agent what it takes. What it doesn't stays, and the client waits. */
static void in_feed(struct call *c)
{
    struct file_body *f = c->filling;
    if (!c->file) /* failed and answered */
        return;
    while (f->is_ready && buf_len(&c->in)) {
        size_t n = file_write_data(c->file, buf_str(&c->in));
        buf_consume(&c->in, n);
        f->is_ready = n > 0;
    }
    if (c->in_ended && f->is_ready && !buf_len(&c->in))
        file_write_eof(c->file);
    call_await_body(c, !f->is_ready || buf_len(&c->in));
}

static void in_ready(void *ctx)
{
    struct file_body *f = ctx;
    f->is_ready = true;
    in_feed(f->call);
}

const struct file_write_ops file_body_in = {in_ready, bytes_end};

/* A client that leaves in the middle ends the call, and with it the file, which never hears of an end then. */
void file_body_receive(struct file_body *f, int r)
{
    file_body_begun(f, r);
    if (r < 0)
        return;
    f->call->filling = f;
    call_gather_body(f->call, FILE_BODY_IN_MAX, in_feed);
    http_pause_body(f->call->req); /* until the file is open */
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs between two file trees, as coved finds it: its records come through a pipe (sandbox/life/layers.h) and go out as NDJSON.
 *
 *  1. The pipe is read no faster than the client takes what came of it; coved's job waits meanwhile, or gives up.
 *  2. The answer ends when the pipe has ended and coved has said how it went. A client that leaves closes the pipe; the object waits for coved.
 *  3. The pipe is closed by the handle's close, never before it: the number may be somebody else's by then, whom libuv would forget with the handle.
 */
#include "api/native/handlers.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/life/layers.h"

#include <fcntl.h>
#include <unistd.h>

enum { PIECE = 64 * 1024, IN_MAX = PIECE + LAYERS_PATH_MAX + 64, LINE_MAX_BYTES = 10 * LAYERS_PATH_MAX };

struct native_diff {
    struct call *call; /* NULL: its client has gone */
    uv_poll_t poll;
    int fd;
    struct buf in;
    struct err err; /* of coved, or what was wrong with the records */
    bool polling, ended /* the pipe */, answered /* by coved */, closed /* the handle */;
};

static void native_diff_let_go(struct native_diff *d)
{
    if (!d->closed || !d->answered)
        return;
    buf_fini(&d->in);
    mem_free(d);
}

static void handle_closed(uv_handle_t *handle)
{
    struct native_diff *d = container_of((uv_poll_t *)handle, struct native_diff, poll);
    (void)fd_close(d->fd);
    d->closed = true;
    native_diff_let_go(d);
}

static void native_diff_stop(struct native_diff *d)
{
    if (d->polling)
        (void)uv_poll_stop(&d->poll);
    d->polling = false;
}

static void native_diff_begin(struct native_diff *d)
{
    if (!http_response_begun(d->call->req))
        (void)http_response_begin(d->call->req, 200,
                                  (struct http_header[]){HTTP_HEADER("content-type", "application/x-ndjson")}, 1, -1);
}

static const char too_much[] =
    "wait until other comparisons have ended, or compare what is closer, such as a sandbox with its last snapshot";

static void native_diff_finish(struct native_diff *d)
{
    struct call *c = d->call;
    if (!c || !d->ended || !d->answered)
        return;
    /* The usual advice is about sandboxes that run. */
    bool is_too_much = d->err.code == ERR_RESOURCE_EXHAUSTED;
    if (d->err.code && !http_response_begun(c->req)) {
        call_fail_hint(c, &d->err, is_too_much ? too_much : NULL);
        return;
    }
    native_diff_begin(d);
    if (d->err.code) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        if (is_too_much) {
            buf_printf(&b, "{\"error\":{\"code\":\"%s\",\"message\":", err_code_name(d->err.code));
            buf_append_json_string(&b, str_of(d->err.msg));
            buf_printf(&b, ",\"hint\":\"%s\"}}", too_much);
        } else {
            native_error_json(&b, &d->err);
        }
        buf_append_char(&b, '\n');
        (void)http_response_write(c->req, buf_str(&b));
    }
    (void)http_response_end(c->req);
}

/* One record as a line. False: there is no whole one. */
static bool take_record(struct native_diff *d)
{
    AUTO_BUF struct buf line = BUF_INIT(LINE_MAX_BYTES);
    struct str in = buf_str(&d->in);
    struct layers_change change;
    int r = layers_change_next(&in, &change);
    if (r < 0) {
        (void)err_set(&d->err, ERR_INTERNAL, "the comparison was cut short: a record of it is none");
        buf_clear(&d->in);
        d->ended = true;
    }
    if (r <= 0)
        return false;
    buf_printf(&line, "{\"change\":\"%s\",\"type\":\"%s\",\"path\":", change.change, change.type);
    AUTO_FREE char *path = mem_printf("/%.*s", STR_ARG(change.path));
    buf_append_json_string(&line, str_of(path));
    if (!str_is_utf8(str_of(path))) { /* several such have the same "path" */
        (void)buf_append_cstr(&line, ",\"path_base64\":\"");
        (void)buf_append_base64(&line, str_of(path));
        (void)buf_append_cstr(&line, "\"");
    }
    buf_printf(&line, ",\"mode\":%u,\"size\":%llu}\n", change.mode, (unsigned long long)change.size);
    buf_consume(&d->in, buf_len(&d->in) - in.n);
    native_diff_begin(d);
    (void)http_response_write(d->call->req, buf_str(&line));
    return true;
}

static void native_diff_on_readable(uv_poll_t *poll, int status, int events)
{
    struct native_diff *d = container_of(poll, struct native_diff, poll);
    char *room = buf_reserve(&d->in, PIECE);
    (void)events;
    ssize_t n = status < 0 || !room ? -1 : read(d->fd, room, PIECE);
    if (n < 0 && status == 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        buf_commit(&d->in, (size_t)n);
    while (take_record(d))
        continue;
    if (n <= 0 && !d->ended) {
        d->ended = true;
        if (buf_len(&d->in) && !d->err.code)
            (void)err_set(&d->err, ERR_INTERNAL, "the comparison was cut short");
    }
    if (d->ended || call_is_full(d->call))
        native_diff_stop(d);
    native_diff_finish(d);
}

static void native_diff_start(struct native_diff *d)
{
    if (!d->polling && !d->ended && uv_poll_start(&d->poll, UV_READABLE, native_diff_on_readable) == 0)
        d->polling = true;
}

static void native_diff_on_drain(struct http_request *req, void *ctx)
{
    (void)req;
    native_diff_start(ctx);
}

static void native_diff_on_done(void *ctx, const struct err *err)
{
    struct native_diff *d = ctx;
    d->answered = true;
    if (err)
        d->err = *err;
    native_diff_finish(d);
    native_diff_let_go(d);
}

static void native_diff_on_closed(struct call *c)
{
    struct native_diff *d = c->state;
    d->call = NULL;
    uv_close((uv_handle_t *)&d->poll, handle_closed);
}

void native_diff(struct call *c)
{
    struct str a = STR(""), b = STR_NULL;
    int fds[2];
    struct err err;
    (void)call_query(c, "a", &a);
    if (!call_query(c, "b", &b) || !b.n) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "b is missing: a sandbox's id, or a template's or snapshot's name");
        return;
    }
    if (pipe2(fds, O_CLOEXEC) < 0) {
        (void)err_errno(&err, errno, "make a pipe");
        call_fail_err(c, &err);
        return;
    }
    AUTO_CLOSE int ours = fds[0], theirs = fds[1];
    struct native_diff *d = mem_new(struct native_diff);
    *d = (struct native_diff){.call = c, .fd = -1, .in = BUF_INIT(IN_MAX)};
    int r = fd_nonblock(ours, true);
    if (r == 0)
        r = uv_poll_init(core_loop(call_core(c)), &d->poll, ours);
    if (r < 0) {
        mem_free(d);
        call_refuse(c, ERR_INTERNAL, "the comparison can't be followed");
        return;
    }
    d->fd = TAKE_FD(ours);
    if (layers_diff(call_core(c), c->actor.who.view, a, b, TAKE_FD(theirs), native_diff_on_done, d, &err) < 0) {
        d->answered = true;
        call_fail_err(c, &err);
        uv_close((uv_handle_t *)&d->poll, handle_closed);
        return;
    }
    c->state = d;
    c->cleanup = native_diff_on_closed;
    http_on_drain(c->req, native_diff_on_drain, d);
    native_diff_start(d);
}

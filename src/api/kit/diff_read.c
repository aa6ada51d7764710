/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of coved's comparison (sandbox/life/layers.h), which come through a pipe.
 *
 *  1. The pipe is read no faster than the changes are taken; coved's job waits meanwhile, or gives up.
 *  2. It ends when the pipe has ended and coved has said how it went. Whoever loses interest closes the pipe; the
 *     object waits for coved.
 *  3. The pipe is closed by the handle's close, never before it: the number may be somebody else's by then, whom libuv
 *     would forget with the handle.
 */
#include "api/kit/diff_read.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <unistd.h>

enum { DIFF_READ_PIECE = 64 * 1024, IN_MAX = DIFF_READ_PIECE + LAYERS_PATH_MAX + 64 };

struct diff_read {
    const struct diff_read_ops *ops; /* NULL: nobody wants it any more, or was told the end */
    void *ctx;
    uv_poll_t poll;
    int fd;
    struct buf in;
    struct err err; /* of coved, or what was wrong with the records */
    bool polling, ended /* the pipe */, answered /* by coved */, closed /* the handle */;
};

static void diff_read_let_go(struct diff_read *d)
{
    if (!d->closed || !d->answered)
        return;
    buf_fini(&d->in);
    mem_free(d);
}

static void diff_read_closed(uv_handle_t *handle)
{
    struct diff_read *d = container_of((uv_poll_t *)handle, struct diff_read, poll);
    (void)fd_close(d->fd);
    d->closed = true;
    diff_read_let_go(d);
}

static void diff_read_pause(struct diff_read *d)
{
    if (d->polling)
        (void)uv_poll_stop(&d->poll);
    d->polling = false;
}

static void diff_read_finish(struct diff_read *d)
{
    if (d->ops && d->ended && d->answered)
        TAKE_PTR(d->ops)->on_end(d->ctx, d->err.code ? &d->err : NULL);
}

/* False: there is no whole record. */
static bool diff_read_take(struct diff_read *d)
{
    struct str in = buf_str(&d->in);
    struct layers_change change;
    int r = layers_change_next(&in, &change);
    if (r < 0) {
        (void)err_set(&d->err, ERR_INTERNAL, "the comparison was cut short: one of its records is invalid");
        buf_clear(&d->in);
        d->ended = true;
    }
    if (r <= 0)
        return false;
    d->ops->on_change(d->ctx, &change);
    buf_consume(&d->in, buf_len(&d->in) - in.n);
    return true;
}

static void diff_read_readable(uv_poll_t *poll, int status, int events UNUSED)
{
    struct diff_read *d = container_of(poll, struct diff_read, poll);
    char *room = buf_reserve(&d->in, DIFF_READ_PIECE);
    ssize_t n = status < 0 || !room ? -1 : read(d->fd, room, DIFF_READ_PIECE);
    if (n < 0 && status == 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        buf_commit(&d->in, (size_t)n);
    while (diff_read_take(d))
        continue;
    if (n <= 0 && !d->ended) {
        d->ended = true;
        if (buf_len(&d->in) && !d->err.code)
            (void)err_set(&d->err, ERR_INTERNAL, "the comparison was cut short");
    }
    if (d->ended || (d->ops->is_full && d->ops->is_full(d->ctx)))
        diff_read_pause(d);
    diff_read_finish(d);
}

void diff_read_resume(struct diff_read *d)
{
    if (!d->polling && !d->ended && uv_poll_start(&d->poll, UV_READABLE, diff_read_readable) == 0)
        d->polling = true;
}

static void diff_read_answered(void *ctx, const struct err *err)
{
    struct diff_read *d = ctx;
    d->answered = true;
    if (err)
        d->err = *err;
    diff_read_finish(d);
    diff_read_let_go(d);
}

void diff_read_close(struct diff_read *d)
{
    d->ops = NULL;
    uv_close((uv_handle_t *)&d->poll, diff_read_closed);
}

int diff_read_start(struct core *core, uint64_t view, struct str a, struct str b, const struct diff_read_ops *ops,
                    void *ctx, struct diff_read **ret_read, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "make a pipe");
    AUTO_CLOSE int ours = fds[0], theirs = fds[1];
    struct diff_read *d = mem_new(struct diff_read);
    *d = (struct diff_read){.ops = ops, .ctx = ctx, .fd = -1, .in = BUF_INIT(IN_MAX)};
    int r = fd_nonblock(ours, true);
    if (r == 0)
        r = uv_poll_init(core_loop(core), &d->poll, ours);
    if (r < 0) {
        mem_free(d);
        return err_set(err, ERR_INTERNAL, "the comparison can't be followed");
    }
    d->fd = TAKE_FD(ours);
    if (layers_diff(core, view, a, b, TAKE_FD(theirs), diff_read_answered, d, err) < 0) {
        d->answered = true;
        diff_read_close(d);
        return -1;
    }
    *ret_read = d;
    diff_read_resume(d);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/upload_queue.h"

#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"

/* More than one piece of a body plus what one step of decompression yields. */
enum { WAITING_MAX = 1024 * 1024 };

struct queued_upload {
    struct list node;
    char *path; /* owned */
    size_t path_n;
    struct buf waiting;
    bool complete; /* no more bytes come */
};

struct upload_queue {
    struct upload_target target;
    const struct upload_queue_ops *ops;
    void *ctx;
    struct list files;       /* the first is being written */
    struct file_call *write; /* of the first; NULL before it began */
    bool ready;              /* the core takes bytes */
    bool eof_sent, failed, was_busy;
};

static void upload_free(struct queued_upload *u)
{
    list_remove(&u->node);
    mem_free(u->path);
    buf_fini(&u->waiting);
    mem_free(u);
}

struct upload_queue *upload_queue_new(const struct upload_target *target, const struct upload_queue_ops *ops, void *ctx)
{
    struct upload_queue *q = mem_new(struct upload_queue);

    q->target = *target;
    q->ops = ops;
    q->ctx = ctx;
    list_init(&q->files);
    return q;
}

static void upload_queue_stop(struct upload_queue *q)
{
    if (q->write)
        file_call_cancel(TAKE_PTR(q->write));
    LIST_FOREACH (struct queued_upload, u, &q->files, node)
        upload_free(u);
}

void upload_queue_free(struct upload_queue *q)
{
    upload_queue_stop(q);
    mem_free(q);
}

bool upload_queue_is_empty(const struct upload_queue *q)
{
    return list_empty(&q->files);
}

bool upload_queue_is_busy(const struct upload_queue *q)
{
    const struct queued_upload *first = LIST_FIRST(struct queued_upload, &q->files, node);

    if (!first)
        return false;
    return !q->ready || first->complete || buf_len(&first->waiting) || first->node.next != &q->files;
}

/* Gives the core as much as it takes; the rest waits for on_ready. */
static size_t upload_queue_give(struct upload_queue *q, struct str bytes)
{
    size_t given = 0;

    while (q->ready && given < bytes.n) {
        size_t n = file_write_data(q->write, str_sub(bytes, given));

        q->ready = n > 0;
        given += n;
    }
    return given;
}

static void upload_queue_push(struct upload_queue *q)
{
    struct queued_upload *first = LIST_FIRST(struct queued_upload, &q->files, node);

    buf_consume(&first->waiting, upload_queue_give(q, buf_str(&first->waiting)));
    if (first->complete && buf_len(&first->waiting) == 0 && q->ready && !q->eof_sent) {
        q->eof_sent = true;
        file_write_eof(q->write);
    }
}

static void upload_queue_fail(struct upload_queue *q, const struct err *err)
{
    q->failed = true;
    upload_queue_stop(q);
    q->ops->on_error(q->ctx, err);
}

static void upload_queue_on_ready(void *ctx)
{
    struct upload_queue *q = ctx;

    q->ready = true;
    upload_queue_push(q);
    if (!upload_queue_is_busy(q))
        q->ops->on_idle(q->ctx);
}

static void upload_queue_on_end(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct upload_queue *q = ctx;
    struct queued_upload *first = LIST_FIRST(struct queued_upload, &q->files, node);
    struct err local;

    q->write = NULL;
    if (!err && !q->eof_sent) { /* whoever says so inside lies */
        (void)err_set(&local, ERR_INTERNAL, FILES_ENDED_EARLY);
        err = &local;
    }
    if (err) {
        upload_queue_fail(q, err);
        return;
    }
    assert(first); /* the one that was being written */
    upload_free(first);
    q->ops->on_written(q->ctx, entry);
    if (list_empty(&q->files))
        q->ops->on_idle(q->ctx);
    else
        q->ops->on_next(q->ctx);
}

static const struct file_write_ops ops = {upload_queue_on_ready, upload_queue_on_end};

int upload_queue_write(struct upload_queue *q, struct err *err)
{
    const struct queued_upload *first = LIST_FIRST(struct queued_upload, &q->files, node);
    const struct upload_target *t = &q->target;

    q->ready = q->eof_sent = false;
    if (file_write(t->sandbox, t->actor, t->user, str_n(first->path, first->path_n), t->metadata, t->n_metadata, &ops,
                   q, &q->write, err) == 0)
        return 0;
    if (err->reason != ERR_HELD) {
        q->failed = true;
        upload_queue_stop(q);
    }
    return -1;
}

void upload_queue_begin(struct upload_queue *q, struct str path)
{
    struct queued_upload *u = mem_new(struct queued_upload);
    bool first = list_empty(&q->files);

    u->path = mem_strndup(path.p ? path.p : "", path.n);
    u->path_n = path.n;
    buf_init(&u->waiting, WAITING_MAX);
    list_append(&q->files, &u->node);
    if (first) {
        q->ready = q->eof_sent = false;
        q->ops->on_next(q->ctx);
    }
}

static struct queued_upload *last(struct upload_queue *q)
{
    assert(!list_empty(&q->files));
    return container_of(q->files.prev, struct queued_upload, node);
}

void upload_queue_data(struct upload_queue *q, struct str bytes)
{
    struct queued_upload *u;

    if (q->failed)
        return;
    u = last(q);
    if (q->files.next == &u->node && buf_len(&u->waiting) == 0)
        bytes = str_sub(bytes, upload_queue_give(q, bytes));
    if (bytes.n)
        buf_append_str(&u->waiting, bytes);
    assert(buf_error(&u->waiting) == 0);
}

void upload_queue_end(struct upload_queue *q)
{
    struct queued_upload *u;

    if (q->failed)
        return;
    u = last(q);
    u->complete = true;
    if (q->files.next == &u->node)
        upload_queue_push(q);
}

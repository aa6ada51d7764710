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
    struct call *call; /* whose it is */
    struct str user;
    const struct pair *metadata;
    size_t n_metadata;
    const struct upload_queue_ops *ops;
    struct list files;       /* the first is being written */
    struct file_call *write; /* of the first; NULL before it began */
    bool ready;              /* the core takes bytes */
    bool failed;
};

static void upload_free(struct queued_upload *u)
{
    list_remove(&u->node);
    mem_free(u->path);
    buf_fini(&u->waiting);
    mem_free(u);
}

void upload_queue_make(struct call *c, struct str user, const struct pair *metadata, size_t n_metadata,
                       const struct upload_queue_ops *ops)
{
    struct upload_queue *q = mem_new(struct upload_queue);
    *q = (struct upload_queue){.call = c, .user = user, .metadata = metadata, .n_metadata = n_metadata, .ops = ops};
    list_init(&q->files);
    c->uploads = q;
}

static void upload_queue_stop(struct upload_queue *q)
{
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
    if (first->complete && buf_len(&first->waiting) == 0 && q->ready)
        file_write_eof(q->write);
}

static void upload_queue_fail(struct upload_queue *q, const struct err *err)
{
    q->failed = true;
    upload_queue_stop(q);
    call_fail_err(q->call, err);
}

static void upload_queue_write(struct call *c);

static void upload_queue_on_ready(void *ctx)
{
    struct upload_queue *q = ctx;
    q->ready = true;
    upload_queue_push(q);
    if (!upload_queue_is_busy(q) && !q->call->answered)
        q->ops->on_idle(q->call);
}

static void upload_queue_on_end(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct upload_queue *q = ctx;
    struct queued_upload *first = LIST_FIRST(struct queued_upload, &q->files, node);
    q->write = NULL;
    if (err) {
        upload_queue_fail(q, err);
        return;
    }
    assert(first); /* the one that was being written */
    upload_free(first);
    if (q->ops->on_written)
        q->ops->on_written(q->call, entry);
    if (!list_empty(&q->files))
        call_step(q->call, upload_queue_write);
    else if (!q->call->answered)
        q->ops->on_idle(q->call);
}

static const struct file_write_ops ops = {upload_queue_on_ready, upload_queue_on_end};

static void upload_queue_write(struct call *c)
{
    struct upload_queue *q = c->uploads;
    const struct queued_upload *first = LIST_FIRST(struct queued_upload, &q->files, node);
    q->ready = false;
    if (file_write(c->sandbox, &c->actor, q->user, str_n(first->path, first->path_n), q->metadata, q->n_metadata, &ops,
                   q, &q->write, &c->err) == 0)
        return;
    if (c->err.reason == ERR_HELD)
        call_fail_err(c, &c->err);
    else
        upload_queue_fail(q, &c->err);
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
        q->ready = false;
        call_step(q->call, upload_queue_write);
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/supervisor.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"

#include <poll.h>

enum {
    ANSWER_MS = 30000,
    CREATE_MS = 180000, /* the first machine on a layer makes an image of it, and boots */
    SLOW_ANSWER_MS = 3600 * 1000,
    SUPERVISOR_QUEUE_MAX = 4 * SUP_SANDBOXES_MAX, /* requests that coved did not read yet */
    MESSAGES_PER_TURN = 64,
};

struct supervisor {
    struct loop *loop;
    const struct supervisor_ops *ops;
    void *ctx;
    uv_poll_t poll;
    int fd;
    int answer_fd; /* owned: came with the answer that is told; -1: none */
    bool lost, freed, wants_write;
    uint32_t last_tag;
    struct map requests; /* tag -> struct request */
    struct list queue;   /* struct request that are still to be sent */
    struct list sent;    /* those that were, and have no answer yet, in their order */
    size_t n_queued;
    uint32_t again; /* the tag of the SUP_AGAIN that goes before the queue; 0: none */
    struct loop_job lost_job;
};

struct request {
    struct supervisor *sup;
    uint32_t tag;
    supervisor_fn fn;
    supervisor_item_fn each; /* or NULL */
    void *ctx;
    struct loop_alarm alarm;
    struct list node; /* in the queue, or in `sent` */
    bool is_queued;
    bool is_once; /* can't be repeated: it had a descriptor, or a part of its list has come */
    int fd;       /* owned: goes along with it; -1: none */
    union sup_message message;
};

static void supervisor_finish(struct request *q, const union sup_message *answer, const struct err *err)
{
    struct supervisor *sup = q->sup;
    (void)map_del_u64(&sup->requests, q->tag);
    loop_alarm_clear(sup->loop, &q->alarm);
    sup->n_queued -= q->is_queued;
    list_remove(&q->node);
    (void)fd_close(q->fd);
    if (q->fn)
        q->fn(q->ctx, answer, err);
    mem_free(q);
}

int supervisor_take_fd(struct supervisor *sup)
{
    return TAKE_FD(sup->answer_fd);
}

static void supervisor_fail_all(struct supervisor *sup)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the supervisor is gone");
    for (struct request *q; (q = map_any(&sup->requests));)
        supervisor_finish(q, NULL, &err);
}

static void supervisor_on_lost_job(struct loop_job *job)
{
    struct supervisor *sup = container_of(job, struct supervisor, lost_job);
    supervisor_fail_all(sup);
    sup->ops->on_lost(sup->ctx);
}

static void lose(struct supervisor *sup, const char *why)
{
    if (sup->lost)
        return;
    log_error("the supervisor: %s", why);
    sup->lost = true;
    (void)uv_poll_stop(&sup->poll);
    loop_later(sup->loop, &sup->lost_job);
}

/* What copies or walks files, or talks to others, takes as long as that takes. */
static uint64_t patience_ms(uint32_t type)
{
    switch (type & ~(uint32_t)SUP_REPEATED) {
    case SUP_PAUSE:
    case SUP_SNAPSHOT:
    case SUP_REWIND:
    case SUP_IMAGE:
    case SUP_DIFF:
        return SLOW_ANSWER_MS;
    case SUP_CREATE:
        return CREATE_MS;
    default:
        return ANSWER_MS;
    }
}

static void supervisor_on_alarm(struct loop_alarm *alarm)
{
    struct request *q = container_of(alarm, struct request, alarm);
    struct err err;
    (void)err_set(&err, ERR_DEADLINE_EXCEEDED, "the supervisor did not answer within %d s",
                  (int)(patience_ms(q->message.head.type) / 1000));
    supervisor_finish(q, NULL, &err);
}

/* ---- out ---- */

static void on_poll(uv_poll_t *handle, int status, int events);

/* 0, or as fd_send(). */
static int send_again(struct supervisor *sup)
{
    const struct sup_head head = {SUP_AGAIN, sup->again};
    int r = sup->again ? fd_send(sup->fd, &head, sizeof(head), NULL, 0) : 0;
    if (r == 0)
        sup->again = 0;
    return r;
}

static void send_queue(struct supervisor *sup)
{
    struct request *q;
    while (!sup->lost && (q = LIST_FIRST(struct request, &sup->queue, node))) {
        int r = send_again(sup);
        r = r ? r : fd_send(sup->fd, &q->message, sup_size(q->message.head.type), &q->fd, q->fd >= 0 ? 1 : 0);
        if (r == -EAGAIN || r == -ENOBUFS)
            break;
        if (r < 0) {
            lose(sup, strerror(-r));
            return;
        }
        list_remove(&q->node);
        list_append(&sup->sent, &q->node);
        q->is_queued = false;
        sup->n_queued--;
        q->is_once |= q->fd >= 0;
        q->fd = fd_close(q->fd);
    }
    bool want = !list_empty(&sup->queue);
    if (want != sup->wants_write && !sup->lost) {
        sup->wants_write = want;
        (void)uv_poll_start(&sup->poll, want ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_poll);
    }
}

bool supervisor_is_lost(const struct supervisor *sup)
{
    return sup->lost;
}

size_t supervisor_pending(const struct supervisor *sup)
{
    return map_count(&sup->requests);
}

int supervisor_call_with(struct supervisor *sup, union sup_message *request, int fd, supervisor_item_fn each,
                         supervisor_fn fn, void *ctx, struct err *err)
{
    AUTO_CLOSE int passed = fd;
    if (sup->lost)
        return err_set(err, ERR_UNAVAILABLE, "the supervisor is gone");
    if (sup->n_queued >= SUPERVISOR_QUEUE_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "the supervisor is overloaded: try again later");
    struct request *q = mem_new(struct request);
    q->sup = sup;
    q->fn = fn;
    q->each = each;
    q->ctx = ctx;
    q->fd = TAKE_FD(passed);
    do
        q->tag = ++sup->last_tag;
    while (!q->tag || map_get_u64(&sup->requests, q->tag));
    q->message = *request;
    q->message.head.tag = q->tag;
    list_init(&q->node);
    list_append(&sup->queue, &q->node);
    q->is_queued = true;
    sup->n_queued++;
    (void)map_put_u64(&sup->requests, q->tag, q);
    loop_alarm_set(sup->loop, &q->alarm, clock_mono() + patience_ms(q->message.head.type) * USEC_PER_MS,
                   supervisor_on_alarm);
    send_queue(sup);
    return 0;
}

int supervisor_call(struct supervisor *sup, union sup_message *request, supervisor_fn fn, void *ctx, struct err *err)
{
    return supervisor_call_with(sup, request, -1, NULL, fn, ctx, err);
}

int supervisor_call_id(struct supervisor *sup, enum sup_type type, const char *id, supervisor_fn fn, void *ctx,
                       struct err *err)
{
    union sup_message m = {.id = {.head = {.type = type}}};
    assert(strlen(id) == ID_SANDBOX_LEN);
    memcpy(m.id.id, id, ID_SANDBOX_LEN);
    return supervisor_call(sup, &m, fn, ctx, err);
}

int supervisor_pause(struct supervisor *sup, const char *id, enum sup_pause_kind kind, supervisor_fn fn, void *ctx,
                     struct err *err)
{
    union sup_message m = {.pause = {.head = {.type = SUP_PAUSE}, .kind = kind}};
    memcpy(m.pause.id, id, ID_SANDBOX_LEN);
    return supervisor_call(sup, &m, fn, ctx, err);
}

struct late_answer {
    struct loop_job job;
    supervisor_fn fn;
    void *ctx;
    struct err err;
};

static void supervisor_on_answer(struct loop_job *job)
{
    struct late_answer *a = container_of(job, struct late_answer, job);
    a->fn(a->ctx, NULL, &a->err);
    mem_free(a);
}

void supervisor_answer(struct supervisor *sup, supervisor_fn fn, void *ctx, const struct err *err)
{
    struct late_answer *a = mem_new(struct late_answer);
    *a = (struct late_answer){.fn = fn, .ctx = ctx, .err = *err};
    loop_job_init(&a->job, supervisor_on_answer);
    loop_later(sup->loop, &a->job);
}

/* ---- in ---- */

static int answer_error(union sup_message *m, struct err *ret_err)
{
    if (m->head.type == SUP_USED) {
        if (m->used.code)
            return err_set(ret_err, (enum err_code)m->used.code, "no figures: %s",
                           err_code_name((enum err_code)m->used.code));
        return 0;
    }
    if (m->head.type == SUP_POOLED || !m->done.code)
        return 0;
    m->done.message[SUP_TEXT_MAX - 1] = 0; /* struct sup_stored begins like struct sup_done */
    (void)err_set(ret_err, ERR_INTERNAL, "%s", m->done.message);
    (void)!err_unpack((uint32_t)m->done.code, ret_err);
    return -1;
}

static void end_texts(union sup_message *item)
{
    switch (item->head.type) {
    case SUP_LISTED:
        item->listed.id[ID_SANDBOX_LEN] = 0;
        break;
    case SUP_LAYER:
        item->layer.layer[SUP_DIGEST_MAX - 1] = item->layer.below[SUP_DIGEST_MAX - 1] = 0;
        break;
    default:
        item->volume.volume[SUP_VOLUME_MAX - 1] = 0;
        break;
    }
}

/* Another coved: what the one before had not answered is asked again, in the same order, before what was not asked
 * yet. */
static void repeat(struct supervisor *sup, uint32_t tag)
{
    struct list undecided;
    struct request *q;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the supervisor was restarted: try again");
    sup->again = tag;
    list_init(&undecided);
    while (!list_empty(&sup->sent)) {
        q = container_of(sup->sent.prev, struct request, node);
        list_remove(&q->node);
        if (q->is_once) {
            list_prepend(&undecided, &q->node);
            continue;
        }
        q->message.head.type |= SUP_REPEATED;
        list_prepend(&sup->queue, &q->node);
        q->is_queued = true;
        sup->n_queued++;
    }
    while ((q = LIST_FIRST(struct request, &undecided, node)))
        supervisor_finish(q, NULL, &err);
    sup->ops->on_restarted(sup->ctx);
    send_queue(sup);
}

static void supervisor_take(struct supervisor *sup, union sup_message *m, int fd)
{
    struct request *q = map_get_u64(&sup->requests, m->head.tag);
    switch (m->head.type) {
    case SUP_ENDED:
        m->ended.id[ID_SANDBOX_LEN] = 0;
        sup->ops->on_ended(sup->ctx, &m->ended);
        break;
    case SUP_EGRESS:
        if (fd >= 0)
            sup->ops->on_egress(sup->ctx, TAKE_FD(fd));
        break;
    case SUP_RESTARTED:
        repeat(sup, m->head.tag);
        break;
    case SUP_LISTED:
    case SUP_LAYER:
    case SUP_VOLUME:
        end_texts(m);
        if (q)
            q->is_once = true;
        if (q && q->each)
            q->each(q->ctx, m);
        break;
    case SUP_CREATED:
    case SUP_DONE:
    case SUP_ATTACHED:
    case SUP_STORED:
    case SUP_POOLED:
    case SUP_USED: {
        struct err err;
        if (!q)
            break; /* answered too late */
        if (answer_error(m, &err) < 0) {
            supervisor_finish(q, NULL, &err);
        } else {
            sup->answer_fd = TAKE_FD(fd);
            supervisor_finish(q, m, NULL);
            sup->answer_fd = fd_close(sup->answer_fd);
        }
        break;
    }
    default:
        break;
    }
    (void)fd_close(fd);
}

static void supervisor_take_seen(struct supervisor *sup, char *at, size_t n)
{
    const size_t least = offsetof(struct sup_seen, text);
    while (n >= least) {
        struct sup_seen *s = (struct sup_seen *)at;
        size_t size = s->head.tag;
        if (size < least || size > n || size % SUP_SEEN_ALIGN ||
            (uint64_t)s->argv + s->program + s->path > size - least)
            break;
        s->id[ID_SANDBOX_LEN] = 0;
        sup->ops->on_seen(sup->ctx, s);
        at += size;
        n -= size;
    }
    sup->ops->on_seen(sup->ctx, NULL);
}

/* 1: a message was taken, 0: there is none, -1: lost. */
static int take_one(struct supervisor *sup)
{
    union {
        union sup_message one;
        char seen[SUP_SEEN_MESSAGE];
    } m;
    m.one.head.type = 0;
    int fd = -1;
    size_t n_fds = 0;
    ssize_t n = fd_recv(sup->fd, &m, sizeof(m), &fd, 1, &n_fds);
    if (n == -EAGAIN)
        return 0;
    if (n_fds == 0)
        fd = -1;
    bool is_seen = n >= (ssize_t)sizeof(m.one.head) && m.one.head.type == SUP_SEEN;
    if (n <= 0 || (size_t)n < sizeof(m.one.head) || (!is_seen && (size_t)n != sup_size(m.one.head.type))) {
        lose(sup, n == 0 ? "end of file" : n < 0 ? strerror((int)-n) : "a message that is none");
        (void)fd_close(fd);
        return -1;
    }
    if (is_seen) {
        supervisor_take_seen(sup, m.seen, (size_t)n);
        (void)fd_close(fd);
    } else {
        supervisor_take(sup, &m.one, fd);
    }
    return 1;
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct supervisor *sup = handle->data;
    if (events & UV_WRITABLE)
        send_queue(sup);
    if (status == 0 && !(events & UV_READABLE))
        return;
    for (int i = 0; i < MESSAGES_PER_TURN && !sup->lost && !sup->freed && take_one(sup) > 0; i++)
        ;
}

struct supervisor_listing {
    bool done;
    struct err err;
    void (*each)(void *ctx, const struct sup_listed *listed);
    void *ctx;
};

static void on_item(void *ctx, const union sup_message *item)
{
    struct supervisor_listing *l = ctx;
    if (item->head.type == SUP_LISTED)
        l->each(l->ctx, &item->listed);
}

static void supervisor_on_listed(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct supervisor_listing *l = ctx;
    l->done = true;
    if (!answer)
        l->err = *err;
}

int supervisor_list(struct supervisor *sup, void (*each)(void *ctx, const struct sup_listed *listed), void *ctx,
                    struct err *err)
{
    struct supervisor_listing l = {.each = each, .ctx = ctx};
    union sup_message m = {.head = {.type = SUP_LIST}};
    usec_t deadline = clock_mono() + ANSWER_MS * USEC_PER_MS;
    if (supervisor_call_with(sup, &m, -1, on_item, supervisor_on_listed, &l, err) < 0)
        return -1;
    while (!l.done && !sup->lost) {
        usec_t now = clock_mono();
        if (now >= deadline)
            break;
        struct pollfd p = {.fd = sup->fd, .events = POLLIN};
        (void)poll(&p, 1, (int)((deadline - now) / USEC_PER_MS + 1));
        while (!l.done && take_one(sup) > 0)
            ;
    }
    if (l.done && l.err.code == ERR_OK)
        return 0;
    /* The request's context ends with this frame. */
    struct request *q = map_get_u64(&sup->requests, sup->last_tag);
    if (q && q->ctx == &l)
        supervisor_finish(q, NULL, &(struct err){.code = ERR_UNAVAILABLE});
    return err_set(err, ERR_UNAVAILABLE, "the supervisor did not say which sandboxes live%s%s", l.done ? ": " : "",
                   l.err.msg);
}

/* ---- life ---- */

int supervisor_new(struct loop *loop, int fd, const struct supervisor_ops *ops, void *ctx, struct supervisor **ret_sup,
                   struct err *err)
{
    struct supervisor *sup = mem_new(struct supervisor);
    int r = fd_nonblock(fd, true);
    if (r >= 0)
        r = uv_poll_init(loop_uv(loop), &sup->poll, fd);
    if (r < 0) {
        (void)fd_close(fd);
        mem_free(sup);
        return err_errno(err, r, "watch the supervisor's socket");
    }
    sup->loop = loop;
    sup->ops = ops;
    sup->ctx = ctx;
    sup->fd = fd;
    sup->answer_fd = -1;
    sup->poll.data = sup;
    list_init(&sup->queue);
    list_init(&sup->sent);
    loop_job_init(&sup->lost_job, supervisor_on_lost_job);
    (void)uv_poll_start(&sup->poll, UV_READABLE, on_poll);
    *ret_sup = sup;
    return 0;
}

static void supervisor_on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

void supervisor_free(struct supervisor *sup)
{
    sup->freed = true;
    sup->lost = true; /* nothing new */
    loop_job_cancel(&sup->lost_job);
    supervisor_fail_all(sup);
    map_fini(&sup->requests);
    uv_close((uv_handle_t *)&sup->poll, supervisor_on_closed);
    (void)fd_close(sup->fd);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/loop.h"
#include "base/mem.h"
#include "wire/proto.h"

struct loop {
    uv_loop_t *uv;
    uv_prepare_t prepare; /* runs what waits for the end of the turn */
    uv_idle_t idle;       /* active only while jobs wait: keeps the loop from sleeping */
    uv_timer_t timer;     /* for the earliest alarm */
    unsigned handles;     /* still to be closed */
    struct list later, before_sleep;
    struct loop_alarm **heap; /* [1 .. n], heap[1] is the earliest */
    size_t n, cap;
    usec_t armed_for; /* 0: the timer does not run */
    struct buf scratch;
    char read_buffer[LOOP_READ_SIZE];
};

void loop_job_init(struct loop_job *job, void (*fn)(struct loop_job *job))
{
    list_init(&job->node);
    job->fn = fn;
}

static void run_all(struct list *jobs)
{
    /* Only what waits now: a job that queues itself again runs in the next turn. */
    struct list now = LIST_INIT(now);
    if (list_empty(jobs))
        return;
    list_append(jobs, &now);
    list_remove(jobs);
    for (struct loop_job *job; (job = LIST_FIRST(struct loop_job, &now, node));) {
        list_remove(&job->node);
        job->fn(job);
    }
}

static void loop_on_idle(uv_idle_t *handle)
{
    struct loop *l = handle->data;
    run_all(&l->later);
    if (list_empty(&l->later))
        (void)uv_idle_stop(&l->idle);
}

void loop_drain(struct loop *l)
{
    while (!list_empty(&l->later))
        run_all(&l->later);
}

static void on_prepare(uv_prepare_t *handle)
{
    struct loop *l = handle->data;
    run_all(&l->before_sleep);
    if (!list_empty(&l->before_sleep))
        (void)uv_idle_start(&l->idle, loop_on_idle);
}

void loop_later(struct loop *l, struct loop_job *job)
{
    if (!list_empty(&job->node))
        return;
    list_append(&l->later, &job->node);
    (void)uv_idle_start(&l->idle, loop_on_idle);
}

void loop_before_sleep(struct loop *l, struct loop_job *job)
{
    if (list_empty(&job->node))
        list_append(&l->before_sleep, &job->node);
}

/* ---- alarms: a binary heap ---- */

static void heap_put(struct loop *l, size_t slot, struct loop_alarm *alarm)
{
    l->heap[slot] = alarm;
    alarm->slot = slot;
}

static void heap_up(struct loop *l, struct loop_alarm *alarm, size_t slot)
{
    for (; slot > 1 && l->heap[slot / 2]->at > alarm->at; slot /= 2)
        heap_put(l, slot, l->heap[slot / 2]);
    heap_put(l, slot, alarm);
}

static void heap_down(struct loop *l, struct loop_alarm *alarm, size_t slot)
{
    for (size_t child; (child = slot * 2) <= l->n; slot = child) {
        if (child < l->n && l->heap[child + 1]->at < l->heap[child]->at)
            child++;
        if (l->heap[child]->at >= alarm->at)
            break;
        heap_put(l, slot, l->heap[child]);
    }
    heap_put(l, slot, alarm);
}

static void heap_remove(struct loop *l, struct loop_alarm *alarm)
{
    size_t slot = alarm->slot;
    struct loop_alarm *last = l->heap[l->n--];
    alarm->slot = 0;
    if (last == alarm)
        return;
    if (slot > 1 && l->heap[slot / 2]->at > last->at)
        heap_up(l, last, slot);
    else
        heap_down(l, last, slot);
}

static void loop_on_timer(uv_timer_t *timer);

static void arm(struct loop *l)
{
    usec_t at = l->n ? l->heap[1]->at : 0;
    if (at == l->armed_for || (l->armed_for && at > l->armed_for))
        return; /* an early ring only arms again: cheaper than moving the timer at each change */
    l->armed_for = at;
    if (!at)
        return;
    usec_t now = clock_mono();
    uv_update_time(l->uv);
    (void)uv_timer_start(&l->timer, loop_on_timer, at > now ? (at - now + USEC_PER_MS - 1) / USEC_PER_MS : 0, 0);
}

static void loop_on_timer(uv_timer_t *timer)
{
    struct loop *l = timer->data;
    usec_t now = clock_mono();
    l->armed_for = 0;
    while (l->n && l->heap[1]->at <= now) {
        struct loop_alarm *alarm = l->heap[1];
        heap_remove(l, alarm);
        alarm->fn(alarm);
    }
    l->armed_for = 0;
    arm(l);
}

void loop_alarm_set(struct loop *l, struct loop_alarm *alarm, usec_t at_mono, void (*fn)(struct loop_alarm *alarm))
{
    if (alarm->slot)
        heap_remove(l, alarm);
    if (l->n + 2 > l->cap) {
        l->cap = MAX((size_t)64, l->cap * 2);
        l->heap = mem_realloc(l->heap, l->cap * sizeof(struct loop_alarm *));
    }
    alarm->at = MAX(at_mono, (usec_t)1);
    alarm->fn = fn;
    heap_up(l, alarm, ++l->n);
    arm(l);
}

void loop_alarm_clear(struct loop *l, struct loop_alarm *alarm)
{
    if (alarm->slot)
        heap_remove(l, alarm);
}

/* ---- life ---- */

struct loop *loop_new(uv_loop_t *uv)
{
    struct loop *l = mem_new(struct loop);
    l->uv = uv;
    l->handles = 3;
    list_init(&l->later);
    list_init(&l->before_sleep);
    buf_init(&l->scratch, WIRE_PAYLOAD_MAX + WIRE_HEADER_SIZE);
    (void)uv_prepare_init(uv, &l->prepare);
    (void)uv_idle_init(uv, &l->idle);
    (void)uv_timer_init(uv, &l->timer);
    l->prepare.data = l->idle.data = l->timer.data = l;
    (void)uv_prepare_start(&l->prepare, on_prepare);
    return l;
}

static void loop_on_closed(uv_handle_t *handle)
{
    struct loop *l = handle->data;
    if (--l->handles)
        return;
    mem_free(l->heap);
    buf_fini(&l->scratch);
    mem_free(l);
}

void loop_free(struct loop *l)
{
    uv_close((uv_handle_t *)&l->prepare, loop_on_closed);
    uv_close((uv_handle_t *)&l->idle, loop_on_closed);
    uv_close((uv_handle_t *)&l->timer, loop_on_closed);
}

uv_loop_t *loop_uv(struct loop *l)
{
    return l->uv;
}

char *loop_read_buffer(struct loop *l)
{
    return l->read_buffer;
}

struct buf *loop_scratch(struct loop *l)
{
    buf_clear(&l->scratch);
    return &l->scratch;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/timers.h"
#include "base/mem.h"

static void timers_on_timer(uv_timer_t *uv);

static void arm(struct timers *ts)
{
    const struct timer *first = LIST_FIRST(struct timer, &ts->list, node);
    usec_t now = clock_mono();
    if (first)
        uv_timer_start(ts->uv, timers_on_timer,
                       first->due > now ? (first->due - now + USEC_PER_MS - 1) / USEC_PER_MS : 0, 0);
    else
        uv_timer_stop(ts->uv);
}

static void timers_on_timer(uv_timer_t *uv)
{
    struct timers *ts = uv->data;
    usec_t now = clock_mono();
    for (;;) {
        struct timer *t = LIST_FIRST(struct timer, &ts->list, node);
        if (!t || t->due > now)
            break;
        list_remove(&t->node);
        t->fn(t);
    }
    arm(ts);
}

void timers_init(struct timers *ts, uv_loop_t *loop)
{
    ts->uv = mem_new(uv_timer_t);
    (void)uv_timer_init(loop, ts->uv); /* 0, always */
    list_init(&ts->list);
    ts->uv->data = ts;
    uv_unref((uv_handle_t *)ts->uv);
}

static void timers_on_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

void timers_fini(struct timers *ts)
{
    if (!ts->uv)
        return;
    while (!list_empty(&ts->list))
        list_remove(ts->list.next);
    uv_close((uv_handle_t *)TAKE_PTR(ts->uv), timers_on_closed);
}

void timer_init(struct timer *t, void (*fn)(struct timer *t))
{
    list_init(&t->node);
    t->due = 0;
    t->fn = fn;
}

void timer_set(struct timers *ts, struct timer *t, uint64_t ms)
{
    usec_t due = clock_mono() + MIN(ms, (uint64_t)1 << 40) * USEC_PER_MS;
    struct list *before;
    list_remove(&t->node);
    t->due = due;
    /* Most intervals are alike, so the place is usually the end. */
    before = ts->list.prev;
    while (before != &ts->list && container_of(before, struct timer, node)->due > due)
        before = before->prev;
    list_prepend(before, &t->node);
    if (ts->list.next == &t->node)
        arm(ts);
}

void timer_stop(struct timer *t)
{
    list_remove(&t->node);
}

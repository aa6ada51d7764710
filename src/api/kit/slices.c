/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/slices.h"
#include "base/mem.h"

static void slices_on_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

static void slices_on_idle(uv_idle_t *idle)
{
    struct slices *s = idle->data;
    usec_t until = clock_mono() + SLICES_TURN_USEC;
    struct list last; /* who comes back gets behind it: next turn's */

    list_append(&s->waiting, &last);
    do {
        struct list *first = s->waiting.next;
        if (first == &last)
            break;
        list_remove(first);
        struct slice *slice = container_of(first, struct slice, node);
        slice->fn(slice);
    } while (clock_mono() < until);
    list_remove(&last);
    if (list_empty(&s->waiting))
        (void)uv_idle_stop(idle);
}

void slices_init(struct slices *s, uv_loop_t *loop)
{
    list_init(&s->waiting);
    s->idle = mem_new(uv_idle_t);
    (void)uv_idle_init(loop, s->idle);
    s->idle->data = s;
}

void slices_fini(struct slices *s)
{
    if (!s->idle)
        return;
    while (!list_empty(&s->waiting))
        list_remove(s->waiting.next);
    uv_close((uv_handle_t *)TAKE_PTR(s->idle), slices_on_closed);
}

void slice_init(struct slice *slice, void (*fn)(struct slice *slice))
{
    list_init(&slice->node);
    slice->fn = fn;
}

void slice_later(struct slices *s, struct slice *slice)
{
    if (!list_empty(&slice->node))
        return;
    list_append(&s->waiting, &slice->node);
    (void)uv_idle_start(s->idle, slices_on_idle);
}

void slice_cancel(struct slice *slice)
{
    list_remove(&slice->node);
}

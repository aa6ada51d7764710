/* SPDX-License-Identifier: Apache-2.0 */
/* Floods: fixed windows per sandbox and kind. What is suppressed is counted, and the count becomes an event. */
#include "base/mem.h"
#include "event/kind.h"
#include "event/tail.h"

static int report(struct event_log *log, struct tail *t, enum event_kind kind, struct err *err)
{
    struct flood *f = &t->floods[kind];
    AUTO_EVENT_DATA struct event_data data =
        EVENT_DATA(DATA_STR("kind", event_kind_name(kind)), DATA_U64("count", f->suppressed));
    struct event_draft draft = {
        .sandbox = t->sandbox,
        .kind = EVENT_LOG_SUPPRESSED,
        .source = EVENT_HOST,
        .grade = EVENT_OBSERVED_HOST,
        .data = event_data_end(&data),
    };
    if (log_append(log, t, &draft, NULL, err) < 0)
        return -1;
    f->reported += f->suppressed;
    f->suppressed = 0;
    return 0;
}

int flood_flush(struct event_log *log, struct tail *t, bool all, struct err *err)
{
    bool any = false;
    usec_t now = clock_mono();
    for (unsigned k = 0; t->floods && k < EVENT_KIND_MAX; k++) {
        struct flood *f = &t->floods[k];
        if (f->suppressed && (all || now - f->window_start >= f->window) && report(log, t, (enum event_kind)k, err) < 0)
            return -1;
        any = any || f->suppressed;
    }
    if (!any)
        list_remove(&t->flooded_node);
    return 0;
}

void flood_batch_ended(struct tail *t, bool committed)
{
    for (unsigned k = 0; t->floods && k < EVENT_KIND_MAX; k++) {
        struct flood *f = &t->floods[k];
        if (!committed)
            f->suppressed += f->reported;
        f->reported = 0;
    }
}

int event_flush_suppressed(struct event_log *log, struct err *err)
{
    assert(!log->busy);
    LIST_FOREACH (struct tail, t, &log->flooded, flooded_node) {
        if (!t->loaded && tail_load(log, t, err) < 0)
            return -1;
        if (flood_flush(log, t, false, err) < 0)
            return -1;
    }
    return 0;
}

struct event_limit event_limit_after(uint64_t told, uint32_t per_sec)
{
    return (struct event_limit){.burst = told < EVENT_TOLD_IN_FULL ? per_sec : MAX(per_sec / 10, 1u),
                                .window = told < EVENT_TOLD_CLOSELY ? USEC_PER_SEC : 60 * USEC_PER_SEC};
}

int event_append_limited(struct event_log *log, const struct event_draft *draft, const struct event_limit *limit,
                         uint64_t *ret_seq, struct err *err)
{
    assert(!log->busy);
    assert(draft->kind > EVENT_KIND_UNKNOWN && draft->kind < EVENT_KIND_MAX && !event_kind_info(draft->kind)->last);
    struct tail *t = tail_get(log, draft->sandbox, err);
    if (!t)
        return -1;
    if (!t->floods)
        t->floods = mem_array(EVENT_KIND_MAX, sizeof(*t->floods));
    struct flood *f = &t->floods[draft->kind];
    const uint32_t count = MAX(draft->count, 1u);
    usec_t now = clock_mono();
    if (f->window == 0 || now - f->window_start >= f->window) {
        if (f->suppressed && report(log, t, draft->kind, err) < 0)
            return -1;
        f->window_start = now;
        f->used = 0;
    }
    f->window = limit->window;
    if (f->used >= limit->burst) {
        f->suppressed += count;
        if (list_empty(&t->flooded_node))
            list_append(&log->flooded, &t->flooded_node);
        if (ret_seq)
            *ret_seq = 0;
        return 0;
    }
    if (log_append(log, t, draft, ret_seq, err) < 0)
        return -1;
    f->used += count;
    return 1;
}

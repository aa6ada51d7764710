/* SPDX-License-Identifier: Apache-2.0 */
/* Reading history, and taking its oldest part away. */
#include "base/mem.h"
#include "event/tail.h"

enum { PRUNE_ROWS = 2000 }; /* per call: a few milliseconds */

int event_bounds_get(struct event_log *log, const char *sandbox, struct event_bounds *ret_bounds, struct err *err)
{
    struct event_head_row head;
    if (log_head(log, sandbox, &head, err) < 0)
        return -1;
    *ret_bounds = (struct event_bounds){.first = head.base_seq + 1, .last = head.last_seq};
    return 0;
}

uint64_t event_newest(struct event_log *log, const char *sandbox)
{
    struct err ignored;
    const struct tail *t = tail_get(log, sandbox, &ignored);
    return t ? t->head.last_seq : 0;
}

struct reading {
    const char *sandbox;
    event_fn fn;
    void *ctx;
};

static bool read_on_row(const struct event_row *row, void *ctx)
{
    const struct reading *r = ctx;
    struct event e = event_of_row(r->sandbox, row);
    return r->fn(&e, r->ctx);
}

int event_read(struct event_log *log, const char *sandbox, uint64_t from_seq, size_t limit, event_fn fn, void *ctx,
               struct err *err)
{
    /* Between batches and within one alike, the head row is that of the last commit. */
    struct event_head_row head;
    assert(!log->busy);
    if (log_head(log, sandbox, &head, err) < 0)
        return -1;
    uint64_t from = MAX(from_seq, head.base_seq + 1);
    if (from > head.last_seq)
        return 0;
    struct reading reading = {sandbox, fn, ctx};
    log->busy = true;
    int64_t n = event_rows_each(log->store, head.log, from, head.last_seq, MIN(limit, (size_t)INT32_MAX), read_on_row,
                                &reading, err);
    log->busy = false;
    return (int)n;
}

/* ---- for who follows ---- */

/* Copies the row, which is gone with the next statement. The data is the one in the JSON: it ends as every record
 * does. */
static int event_slot_fill(struct event_slot *slot, int64_t number, const char *id, const struct event_row *row,
                           struct err *err)
{
    enum { JSON_BEHIND_DATA = 9 + 2 * EVENT_HASH_SIZE + 2 }; /* ,"hash":"..."} */
    struct event e = event_of_row(id, row);
    struct str *const texts[] = {&e.kind_name, &e.source, &e.grade, &e.actor, &e.sandbox};
    slot->event = (struct event){0};
    buf_clear(&slot->text);
    event_format_json(&e, &slot->text);
    size_t json = buf_len(&slot->text), data = e.data.n;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        buf_append_str(&slot->text, *texts[i]);
    buf_append(&slot->text, e.hash, EVENT_HASH_SIZE);
    if (buf_error(&slot->text))
        return err_set(err, ERR_DATA_LOSS, "sandbox %s: event %llu is longer than any: verify the log", id,
                       (unsigned long long)e.seq);
    const char *p = buf_data(&slot->text);
    e.json = str_n(p, json);
    e.data.p = p + json - JSON_BEHIND_DATA - data;
    p += json;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        texts[i]->p = p;
        p += texts[i]->n;
    }
    e.hash = (const unsigned char *)p;
    slot->log = number;
    slot->event = e;
    return 0;
}

static struct event_slot *event_slot_of(struct event_log *log, int64_t number, uint64_t seq)
{
    return &log->cache[((uint64_t)number * 31 + seq) % EVENT_CACHE_SLOTS];
}

int event_fetch(struct event_log *log, int64_t number, const char *id, uint64_t from, uint64_t to,
                struct event *ret_event, struct err *err)
{
    struct event_row row;
    if (!log->cache) {
        log->cache = mem_array(EVENT_CACHE_SLOTS, sizeof(*log->cache));
        for (size_t i = 0; i < EVENT_CACHE_SLOTS; i++)
            buf_init(&log->cache[i].text, EVENT_JSON_MAX + EVENT_ACTOR_MAX + 4096);
    }
    const struct event_slot *known = event_slot_of(log, number, from);
    if (known->log == number && known->event.seq == from && from) {
        *ret_event = known->event;
        return 1;
    }
    int r = event_rows_get(log->store, number, from, to, &row, err);
    if (r <= 0)
        return r;
    struct event_slot *slot = event_slot_of(log, number, row.seq);
    r = event_slot_fill(slot, number, id, &row, err);
    event_rows_done(log->store);
    if (r < 0)
        return -1;
    *ret_event = slot->event;
    return 1;
}

void event_cache_free(struct event_log *log)
{
    for (size_t i = 0; log->cache && i < EVENT_CACHE_SLOTS; i++)
        buf_fini(&log->cache[i].text);
    mem_free(log->cache);
}

/* ---- pruning ---- */

static bool keep_hash(const struct event_row *row, void *ctx)
{
    struct event_head_row *head = ctx;
    head->base_seq = row->seq;
    memset(head->base_hash, 0, sizeof(head->base_hash));
    memcpy(head->base_hash, row->hash.p, MIN(row->hash.n, sizeof(head->base_hash)));
    return false;
}

static int note_pruned(struct event_log *log, struct tail *t, uint64_t from, uint64_t to, struct err *err)
{
    AUTO_EVENT_DATA struct event_data data = EVENT_DATA(DATA_U64("from", from), DATA_U64("to", to));
    struct event_draft draft = {
        .sandbox = t->sandbox,
        .kind = EVENT_LOG_PRUNED,
        .source = EVENT_HOST,
        .grade = EVENT_OBSERVED_HOST,
        .data = event_data_end(&data),
    };
    return log_append(log, t, &draft, NULL, err);
}

int event_prune(struct event_log *log, const char *sandbox, uint64_t keep_from, struct err *err)
{
    assert(!log->busy);
    struct tail *t = tail_get(log, sandbox, err);
    if (!t)
        return -1;
    struct event_head_row head = t->head;
    uint64_t goal = MIN(keep_from, t->committed);
    if (goal <= head.base_seq + 1)
        return 0;
    uint64_t first = head.base_seq + 1, new_first = MIN(goal, first + PRUNE_ROWS);
    int64_t n = event_rows_each(log->store, head.log, new_first - 1, new_first - 1, 1, keep_hash, &head, err);
    if (n < 0)
        return -1;
    if (n == 0)
        return err_set(err, ERR_DATA_LOSS, "sandbox %s: event %llu is missing: verify the log", sandbox,
                       (unsigned long long)(new_first - 1));
    tail_mark(log, t);
    if (event_rows_delete_before(log->store, head.log, new_first, err) < 0 ||
        event_rows_head_rebase(log->store, &head, err) < 0)
        return -1;
    t->head.base_seq = head.base_seq;
    memcpy(t->head.base_hash, head.base_hash, sizeof(head.base_hash));
    if (note_pruned(log, t, first, head.base_seq, err) < 0)
        return -1;
    return new_first < goal;
}

int event_erase(struct event_log *log, const char *sandbox, struct err *err)
{
    assert(!log->busy);
    uint64_t nth = 0;
    struct tail *t = tail_get(log, sandbox, err);
    if (!t)
        return -1;
    if (t->head.log == 0)
        return 0;
    tail_mark(log, t);
    if (event_rows_nth(log->store, t->head.log, PRUNE_ROWS, &nth, err) < 0 ||
        event_rows_delete_before(log->store, t->head.log, nth + 1, err) < 0 ||
        event_rows_nth(log->store, t->head.log, 1, &nth, err) < 0)
        return -1;
    if (nth)
        return 1;
    if (feed_head_gone(log, err) < 0 || event_rows_head_delete(log->store, t->head.log, err) < 0)
        return -1;
    t->head = (struct event_head_row){0};
    return 0;
}

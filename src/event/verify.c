/* SPDX-License-Identifier: Apache-2.0 */
#include "event/verify.h"
#include "event/tail.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const names[] = {
    [EVENT_INTACT] = "intact",     [EVENT_FAULT_HASH] = "hash",
    [EVENT_FAULT_GAP] = "gap",     [EVENT_FAULT_TRUNCATED] = "truncated",
    [EVENT_FAULT_EXTRA] = "extra", [EVENT_FAULT_HEAD] = "head",
};

const char *event_fault_name(enum event_fault fault)
{
    return (unsigned)fault < ARRAY_SIZE(names) ? names[fault] : "unknown";
}

struct walk {
    struct event_log *log;
    const char *sandbox;
    struct event_head_row head;
    uint64_t expected;
    unsigned char hash[EVENT_HASH_SIZE]; /* of event expected - 1 */
    struct event_verdict verdict;
    struct err *err;
    bool failed;
};

PRINTF_LIKE(4, 5) static bool fault(struct walk *w, enum event_fault fault, uint64_t seq, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(w->verdict.detail, sizeof(w->verdict.detail), fmt, ap);
    va_end(ap);
    w->verdict.fault = fault;
    w->verdict.bad_seq = seq;
    return false;
}

static bool on_row(const struct event_row *row, void *ctx)
{
    struct walk *w = ctx;
    unsigned long long seq = row->seq, expected = w->expected;
    if (row->seq < w->expected)
        return fault(w, EVENT_FAULT_EXTRA, row->seq, "event %llu is back, though the log begins with %llu", seq,
                     expected);
    if (row->seq > w->expected && w->expected <= w->head.last_seq)
        return fault(w, EVENT_FAULT_GAP, w->expected, "event %llu is missing", expected);
    if (row->seq > w->head.last_seq)
        return fault(w, EVENT_FAULT_EXTRA, row->seq, "event %llu stands behind the recorded end, %llu", seq,
                     (unsigned long long)w->head.last_seq);
    struct event e = event_of_row(w->sandbox, row);
    int r = chain_next(w->log->chain, w->hash, &e, w->hash, w->err);
    if (r < 0) {
        w->failed = true;
        return false;
    }
    if (r > 0 || memcmp(w->hash, e.hash, sizeof(w->hash)) != 0)
        return fault(w, EVENT_FAULT_HASH, row->seq,
                     "event %llu was changed: its hash does not follow from the one before it", seq);
    w->expected++;
    w->verdict.checked++;
    return true;
}

static int walk(struct walk *w, struct err *err)
{
    struct event_log *log = w->log;
    if (log_head(log, w->sandbox, &w->head, err) < 0)
        return -1;
    /* What waits for its commit is behind the end that the row says, but not behind the one that is in memory. */
    struct tail *t = map_get(&log->tails, str_of(w->sandbox));
    if (t && t->loaded && !list_empty(&t->dirty_node))
        w->head = t->head;
    w->expected = w->head.base_seq + 1;
    memcpy(w->hash, w->head.base_hash, sizeof(w->hash));
    w->verdict.first = w->expected;
    w->verdict.last = w->head.last_seq;
    log->busy = true;
    int64_t n = event_rows_each(log->store, w->head.log, 0, INT64_MAX, INT64_MAX, on_row, w, err);
    log->busy = false;
    if (n < 0 || w->failed)
        return -1;
    if (w->verdict.fault != EVENT_INTACT)
        return 0;
    if (w->expected <= w->head.last_seq)
        (void)fault(w, EVENT_FAULT_TRUNCATED, w->expected, "events %llu to %llu are missing at the end",
                    (unsigned long long)w->expected, (unsigned long long)w->head.last_seq);
    else if (memcmp(w->hash, w->head.last_hash, sizeof(w->hash)) != 0)
        (void)fault(w, EVENT_FAULT_HEAD, w->head.last_seq, "the log ends otherwise than was recorded");
    else
        (void)snprintf(w->verdict.detail, sizeof(w->verdict.detail), "events %llu to %llu are intact",
                       (unsigned long long)w->verdict.first, (unsigned long long)w->verdict.last);
    return 0;
}

int event_verify(struct event_log *log, const char *sandbox, struct event_verdict *ret_verdict, struct err *err)
{
    struct walk w = {.log = log, .sandbox = sandbox, .err = err};
    assert(!log->busy);
    if (store_read_begin(log->store, err) < 0)
        return -1;
    int r = walk(&w, err);
    store_read_end(log->store);
    if (r == 0)
        *ret_verdict = w.verdict;
    return r;
}

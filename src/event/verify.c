/* SPDX-License-Identifier: Apache-2.0 */
#include "event/verify.h"
#include "event/tail.h"

static const char *const names[] = {
    [EVENT_INTACT] = "intact",     [EVENT_FAULT_HASH] = "hash",
    [EVENT_FAULT_GAP] = "gap",     [EVENT_FAULT_TRUNCATED] = "truncated",
    [EVENT_FAULT_EXTRA] = "extra", [EVENT_FAULT_HEAD] = "head",
};

const char *event_fault_name(enum event_fault fault)
{
    return (unsigned)fault < ARRAY_SIZE(names) ? names[fault] : "unknown";
}

struct verify_walk {
    struct event_log *log;
    const char *sandbox;
    struct event_head_row head;
    uint64_t expected;
    unsigned char hash[EVENT_HASH_SIZE]; /* of event expected - 1 */
    struct event_verdict verdict;
    struct err *err;
    bool failed;
};

static bool fault(struct verify_walk *w, enum event_fault what, uint64_t seq)
{
    w->verdict.fault = what;
    w->verdict.bad_seq = seq;
    return false;
}

static bool verify_on_row(const struct event_row *row, void *ctx)
{
    struct verify_walk *w = ctx;
    if (row->seq < w->expected)
        return fault(w, EVENT_FAULT_EXTRA, row->seq);
    if (row->seq > w->expected && w->expected <= w->head.last_seq)
        return fault(w, EVENT_FAULT_GAP, w->expected);
    if (row->seq > w->head.last_seq)
        return fault(w, EVENT_FAULT_EXTRA, row->seq);
    struct event e = event_of_row(w->sandbox, row);
    int r = chain_next(w->log->chain, w->hash, &e, w->hash, w->err);
    if (r < 0) {
        w->failed = true;
        return false;
    }
    if (r > 0 || memcmp(w->hash, e.hash, sizeof(w->hash)) != 0)
        return fault(w, EVENT_FAULT_HASH, row->seq);
    w->expected++;
    w->verdict.checked++;
    return true;
}

static int verify_walk(struct verify_walk *w, struct err *err)
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
    int64_t n = event_rows_each(log->store, w->head.log, 0, INT64_MAX, INT64_MAX, verify_on_row, w, err);
    log->busy = false;
    if (n < 0 || w->failed)
        return -1;
    if (w->verdict.fault != EVENT_INTACT)
        return 0;
    if (w->expected <= w->head.last_seq)
        (void)fault(w, EVENT_FAULT_TRUNCATED, w->expected);
    else if (memcmp(w->hash, w->head.last_hash, sizeof(w->hash)) != 0)
        (void)fault(w, EVENT_FAULT_HEAD, w->head.last_seq);
    return 0;
}

static void verify_describe(struct event_verdict *v)
{
    unsigned long long bad = v->bad_seq, first = v->first, last = v->last;
    char *to = v->detail;
    size_t n = sizeof(v->detail);
    switch (v->fault) {
    case EVENT_INTACT:
        (void)snprintf(to, n, "events %llu to %llu are intact", first, last);
        break;
    case EVENT_FAULT_HASH:
        (void)snprintf(to, n, "event %llu was changed, or another stands in its place", bad);
        break;
    case EVENT_FAULT_GAP:
        (void)snprintf(to, n, "event %llu is missing", bad);
        break;
    case EVENT_FAULT_TRUNCATED:
        (void)snprintf(to, n, "events %llu to %llu are missing at the end", bad, last);
        break;
    case EVENT_FAULT_EXTRA:
        (void)snprintf(to, n, "event %llu was added: the log goes from %llu to %llu", bad, first, last);
        break;
    case EVENT_FAULT_HEAD:
        (void)snprintf(to, n, "event %llu is not the one that the log was recorded to end with", bad);
        break;
    }
}

int event_verify(struct event_log *log, const char *sandbox, struct event_verdict *ret_verdict, struct err *err)
{
    struct verify_walk w = {.log = log, .sandbox = sandbox, .err = err};
    assert(!log->busy);
    if (store_read_begin(log->store, err) < 0)
        return -1;
    int r = verify_walk(&w, err);
    store_read_end(log->store);
    if (r < 0)
        return -1;
    verify_describe(&w.verdict);
    *ret_verdict = w.verdict;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending. Invariants:
 *  1. A tail with `loaded` has in head what the store will say after the current batch. An append changes head only
 *     after its row was written; every change marks the tail dirty.
 *  2. When a batch ends, no tail is dirty: committed ones have their head row written (hook committing) and show it
 *     (committed); those of an undone batch are not loaded.
 *  3. Only tails that are clean, without cursors and without suppressed events are dropped.
 */
#include "base/mem.h"
#include "event/json.h"
#include "event/kind.h"
#include "event/tail.h"

enum {
    DATA_HEAD_MAX = 2048, /* kept of data that is too long or malformed; escaped it may take six times this */
    EVICT_TRIES = 8,
};

/* ---- tails ---- */

static bool id_ok(const char *sandbox)
{
    size_t n = sandbox ? strnlen(sandbox, EVENT_ID_MAX + 1) : 0;
    return n > 0 && n <= EVENT_ID_MAX && str_is_utf8(str_n(sandbox, n));
}

static void tail_free(struct event_log *log, struct tail *t)
{
    (void)map_del(&log->tails, str_of(t->sandbox));
    list_remove(&t->used_node);
    list_remove(&t->dirty_node);
    list_remove(&t->flooded_node);
    MEM_FREE(t->floods, t);
}

static bool is_free(const struct tail *t)
{
    return list_empty(&t->cursors) && list_empty(&t->dirty_node) && list_empty(&t->flooded_node);
}

static void evict(struct event_log *log)
{
    int tries = 0;
    LIST_FOREACH (struct tail, t, &log->used, used_node) {
        if (map_count(&log->tails) < TAILS_MAX || tries++ >= EVICT_TRIES)
            return;
        if (is_free(t)) {
            tail_free(log, t);
        } else { /* not looked at again for a while */
            list_remove(&t->used_node);
            list_append(&log->used, &t->used_node);
        }
    }
}

int tail_load(struct event_log *log, struct tail *t, struct err *err)
{
    struct event_head_row head = {0};
    if (event_rows_head_get(log->store, t->sandbox, &head, err) < 0)
        return -1;
    t->head = head;
    t->loaded = true;
    return 0;
}

struct tail *tail_get(struct event_log *log, const char *sandbox, struct err *err)
{
    if (!id_ok(sandbox)) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "event log: not a sandbox id");
        return NULL;
    }
    struct tail *t = map_get(&log->tails, str_of(sandbox));
    if (t) {
        if (!t->loaded && tail_load(log, t, err) < 0)
            return NULL;
        list_remove(&t->used_node);
        list_append(&log->used, &t->used_node);
        return t;
    }
    t = mem_new(struct tail);
    memcpy(t->sandbox, sandbox, strlen(sandbox));
    list_init(&t->cursors);
    list_init(&t->used_node);
    list_init(&t->dirty_node);
    list_init(&t->flooded_node);
    if (tail_load(log, t, err) < 0) {
        mem_free(t);
        return NULL;
    }
    t->committed = t->head.last_seq;
    evict(log);
    (void)map_put(&log->tails, str_of(sandbox), t);
    list_append(&log->used, &t->used_node);
    return t;
}

void tail_mark(struct event_log *log, struct tail *t)
{
    if (list_empty(&t->dirty_node))
        list_append(&log->dirty, &t->dirty_node);
}

int log_head(struct event_log *log, const char *sandbox, struct event_head_row *ret_head, struct err *err)
{
    if (!id_ok(sandbox))
        return err_set(err, ERR_INVALID_ARGUMENT, "event log: not a sandbox id");
    int r = event_rows_head_get(log->store, sandbox, ret_head, err);
    if (r == 0)
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has no event log", sandbox);
    return r < 0 ? -1 : 0;
}

/* ---- the store's batches ---- */

static int on_committing(void *ctx, struct err *err)
{
    struct event_log *log = ctx;
    LIST_FOREACH (struct tail, t, &log->dirty, dirty_node)
        if (t->head.log && event_rows_head_update(log->store, &t->head, err) < 0)
            return -1;
    return feed_batch_ending(log, err);
}

static void on_committed(void *ctx)
{
    struct event_log *log = ctx;
    LIST_FOREACH (struct tail, t, &log->dirty, dirty_node) {
        list_remove(&t->dirty_node);
        t->committed = t->head.last_seq;
        flood_batch_ended(t, true);
        cursors_note(log, t);
    }
    feed_batch_ended(log, true);
    memcpy(log->committed, log->counts, sizeof(log->counts));
    followers_wake(log);
}

static void on_rolled_back(void *ctx)
{
    struct event_log *log = ctx;
    feed_batch_ended(log, false);
    memcpy(log->counts, log->committed, sizeof(log->counts));
    LIST_FOREACH (struct tail, t, &log->dirty, dirty_node) {
        list_remove(&t->dirty_node);
        t->loaded = false;
        flood_batch_ended(t, false);
        if (t->floods && list_empty(&t->flooded_node))
            list_append(&log->flooded, &t->flooded_node); /* if there is nothing in it, the next flush finds out */
    }
}

int event_log_open(struct store *store, struct event_log **ret_log, struct err *err UNUSED)
{
    struct event_log *log = mem_new(struct event_log);
    log->store = store;
    log->chain = chain_new();
    list_init(&log->used);
    list_init(&log->dirty);
    list_init(&log->flooded);
    list_init(&log->woken);
    buf_init(&log->data, EVENT_DATA_MAX);
    feed_init(&log->feed);
    log->hook = (struct store_hook){on_committing, on_committed, on_rolled_back, log, {0}};
    store_hook_add(store, &log->hook);
    *ret_log = log;
    return 0;
}

void event_log_close(struct event_log *log)
{
    if (!log)
        return;
    /* The store still has to write their heads. */
    struct err ignored;
    if (!list_empty(&log->dirty) && store_commit(log->store, &ignored) < 0)
        store_rollback(log->store);
    LIST_FOREACH (struct tail, t, &log->used, used_node) {
        assert(list_empty(&t->cursors));
        tail_free(log, t);
    }
    store_hook_remove(&log->hook);
    feed_fini(&log->feed);
    event_cache_free(log);
    map_fini(&log->tails);
    chain_free(log->chain);
    buf_fini(&log->data);
    mem_free(log);
}

/* ---- appending ---- */

static struct event log_event(const char *sandbox, const struct event_row *row, enum event_kind kind)
{
    static const unsigned char no_hash[EVENT_HASH_SIZE];
    return (struct event){
        .sandbox = str_of(sandbox),
        .seq = row->seq,
        .time = row->time,
        .kind = kind,
        .kind_name = row->kind,
        .source = row->source,
        .grade = row->grade,
        .actor = row->actor,
        .cause = row->cause,
        .data = row->data,
        .hash = row->hash.n == EVENT_HASH_SIZE ? (const unsigned char *)row->hash.p : no_hash,
    };
}

struct event event_of_row(const char *sandbox, const struct event_row *row)
{
    return log_event(sandbox, row, event_kind_parse(row->kind));
}

/* The data as it is stored: one line of JSON, an object, never too long. */
static struct str normal_data(struct event_log *log, struct str data)
{
    struct buf *b = &log->data;
    buf_clear(b);
    if (data.n == 0)
        return STR("{}");
    int r = json_compact(data, b);
    if (r == 0 && buf_data(b)[0] == '{')
        return buf_str(b);
    buf_clear(b);
    buf_append_str(b, r == -ENOBUFS ? STR("{\"truncated\":true,\"bytes\":") : STR("{\"malformed\":true,\"bytes\":"));
    buf_append_u64(b, data.n);
    buf_append_str(b, STR(",\"head\":"));
    buf_append_json_string(b, str_n(data.p, MIN(data.n, (size_t)DATA_HEAD_MAX)));
    buf_append_char(b, '}');
    assert(buf_error(b) == 0);
    return buf_str(b);
}

/* Cut, and with '?' for what would not be hashed as it is stored. */
static struct str normal_actor(struct str actor, char space[static EVENT_ACTOR_MAX])
{
    size_t n = MIN(actor.n, (size_t)EVENT_ACTOR_MAX);
    if (n)
        memcpy(space, actor.p, n);
    bool ascii_only = !str_is_utf8(str_n(space, n));
    for (size_t i = 0; i < n; i++)
        if (space[i] == 0 || (ascii_only && (unsigned char)space[i] >= 0x80))
            space[i] = '?';
    return str_n(space, n);
}

int log_append(struct event_log *log, struct tail *t, const struct event_draft *draft, uint64_t *ret_seq,
               struct err *err)
{
    char actor[EVENT_ACTOR_MAX];
    unsigned char hash[EVENT_HASH_SIZE];
    struct event_row row = {
        .seq = t->head.last_seq + 1,
        .time = draft->time ? draft->time : clock_real(),
        .cause = draft->cause,
        .kind = str_of(event_kind_name(draft->kind)),
        .source = str_of(event_source_name(draft->source)),
        .grade = str_of(event_grade_name(draft->grade)),
        .actor = normal_actor(draft->actor, actor),
        .data = normal_data(log, draft->data),
        .hash = str_n(hash, sizeof(hash)),
    };
    if (feed_give(log, &row.cursor, err) < 0)
        return -1;
    if (t->head.log == 0) {
        tail_mark(log, t);
        if (event_rows_head_create(log->store, t->sandbox, &t->head, err) < 0)
            return -1;
    }
    struct event e = log_event(t->sandbox, &row, draft->kind);
    int r = chain_next(log->chain, t->head.last_hash, &e, hash, err);
    assert(r <= 0);
    if (r < 0 || event_rows_append(log->store, t->head.log, &row, err) < 0)
        return -1;
    tail_mark(log, t);
    feed_add(log, t, &row);
    log->counts[draft->kind]++;
    t->head.last_seq = row.seq;
    t->head.last_cursor = row.cursor;
    memcpy(t->head.last_hash, hash, sizeof(hash));
    if (ret_seq)
        *ret_seq = row.seq;
    return 0;
}

const uint64_t *event_counts(const struct event_log *log)
{
    return log->committed;
}

int event_append(struct event_log *log, const struct event_draft *draft, uint64_t *ret_seq, struct err *err)
{
    assert(!log->busy);
    assert(draft->kind > EVENT_KIND_UNKNOWN && draft->kind < EVENT_KIND_MAX);
    struct tail *t = tail_get(log, draft->sandbox, err);
    if (!t)
        return -1;
    if (event_kind_info(draft->kind)->last && !list_empty(&t->flooded_node) && flood_flush(log, t, true, err) < 0)
        return -1;
    return log_append(log, t, draft, ret_seq, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the event log, shared by its files: what is in memory of each sandbox's log, its *tail*. Tails are a
 * cache of the head rows, loaded when needed; those that nothing hangs on are dropped, least recently used first.
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "event/chain.h"
#include "event/log.h"
#include "store/event_rows.h"
#include "store/feed_rows.h"
#include "store/store.h"

enum { TAILS_MAX = 2048, EVENT_CACHE_SLOTS = 512 };

struct flood { /* of one kind in one sandbox */
    usec_t window_start, window;
    uint32_t used;
    uint64_t suppressed;
    uint64_t reported; /* in the current batch: suppressed again if that is undone */
};

struct tail {
    char sandbox[EVENT_ID_MAX + 1];
    struct event_head_row head; /* as of the last append, also uncommitted ones; log 0: no row yet */
    bool loaded;                /* head is right; false after a batch was undone */
    uint64_t committed;         /* newest seq that readers may see */
    struct flood *floods;       /* EVENT_KIND_MAX of them, or NULL */
    struct list cursors;
    struct list used_node;    /* log->used */
    struct list dirty_node;   /* log->dirty: head is newer than its row */
    struct list flooded_node; /* log->flooded: something is suppressed */
};

/* Somebody who was drained is told once that there is more. */
struct follower {
    event_wake_fn wake; /* may be NULL */
    void *ctx;
    bool drained;           /* wake is owed */
    struct list node;       /* with the others that the same commits concern */
    struct list woken_node; /* log->woken */
};

void follower_init(struct follower *f, struct list *others, event_wake_fn wake, void *ctx);
void follower_fini(struct follower *f);
void follower_note(struct event_log *log, struct follower *f); /* there is more: wake comes with followers_wake() */
void followers_wake(struct event_log *log);

struct feed_runs {
    struct feed_run *v; /* owned */
    size_t n, cap;
    uint64_t events;
};

struct feed { /* feed.c */
    bool is_loaded;
    uint64_t last, given;
    struct feed_runs runs, pending;
    bool spills;
    uint64_t swept; /* how far feed_sweep() has come */
    struct list readers;
};

/* An event as it was read last: followers of the same events share the work. */
struct event_slot {
    int64_t log;
    struct event event; /* seq 0: empty */
    struct buf text;
};

struct event_log {
    struct store *store;
    struct store_hook hook;
    struct chain *chain;
    struct map tails; /* by sandbox */
    struct list used; /* most recently used last */
    struct list dirty;
    struct list flooded;
    struct list woken; /* followers that are still to be told about this commit */
    struct buf data;   /* scratch of append */
    struct feed feed;
    uint64_t counts[EVENT_KIND_MAX], committed[EVENT_KIND_MAX]; /* by kind, since it was opened */
    struct event_slot *cache;                                   /* EVENT_CACHE_SLOTS of them, or NULL */
    bool busy; /* a reader's callback is running: it must not come back in */
};

struct event_cursor {
    struct event_log *log;
    struct tail *tail;
    uint64_t next;
    struct follower follower; /* among tail->cursors */
};

/* Loaded, and made when it is not there; NULL with *err. */
struct tail *tail_get(struct event_log *log, const char *sandbox, struct err *err) WARN_UNUSED;
int tail_load(struct event_log *log, struct tail *t, struct err *err) WARN_UNUSED;
void tail_mark(struct event_log *log, struct tail *t); /* changed in this batch */

/* Checks the id and reads the committed head row: ERR_NOT_FOUND when there is none. */
int log_head(struct event_log *log, const char *sandbox, struct event_head_row *ret_head, struct err *err) WARN_UNUSED;

struct event event_of_row(const char *sandbox, const struct event_row *row);

/* event_append() without looking at floods. */
int log_append(struct event_log *log, struct tail *t, const struct event_draft *draft, uint64_t *ret_seq,
               struct err *err) WARN_UNUSED;

/* limit.c: writes what is suppressed in this sandbox; with `all` also where the window is still open. */
int flood_flush(struct event_log *log, struct tail *t, bool all, struct err *err) WARN_UNUSED;
void flood_batch_ended(struct tail *t, bool committed);

/* cursor.c: tells the cursors of a tail after a commit. */
void cursors_note(struct event_log *log, struct tail *t);

/*
 * read.c: the first event of a log with from <= seq <= to: 1, or 0. Its json is set too. Valid until the next call on
 * this event log.
 */
int event_fetch(struct event_log *log, int64_t number, const char *id, uint64_t from, uint64_t to,
                struct event *ret_event, struct err *err) WARN_UNUSED;
void event_cache_free(struct event_log *log);

/* feed.c: the cursor of the event that is appended next; it was appended; the batch. */
void feed_init(struct feed *f);
void feed_fini(struct feed *f);
int feed_give(struct event_log *log, uint64_t *ret_cursor, struct err *err) WARN_UNUSED;
void feed_add(struct event_log *log, const struct tail *t, const struct event_row *row);
int feed_head_gone(struct event_log *log, struct err *err) WARN_UNUSED; /* that of a log, in this batch */
int feed_batch_ending(struct event_log *log, struct err *err) WARN_UNUSED;
void feed_batch_ended(struct event_log *log, bool committed);

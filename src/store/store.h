/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: one SQLite file (WAL) with everything of cove-api that must outlive it. This header opens it and ends
 * batches; rows are written and read by the modules beside it (sandbox_rows.h, artefact.h, event_rows.h). All
 * SQL of Cove lives in this folder.
 *
 * Theory of operation
 *  1. One process writes (enforced by a lock on "<path>.lock"), and it does so from one thread. Readers of other
 *     threads or processes open their own with store_open_reader() and see a consistent snapshot.
 *  2. Writes are batched: the first write opens a batch, store_commit() ends it. The owner of the loop calls it at the
 *     end of each turn; who must be durable before it answers calls it itself. What was committed survives a kill of
 *     the process at any moment (a power cut may take the last moments before the last checkpoint, never the order or a
 *     part of a batch).
 *  3. A batch is all or nothing. When a write fails for want of space, or in any way that is not the caller's mistake,
 *     the whole batch is undone at once, later writes of the same batch are refused with the same error, and
 *     store_commit() returns it and starts afresh. So the store is usable again as soon as there is space.
 *  4. The write-ahead log is never folded back by accident: the owner runs a checkpoint when store_wal_pages() says so,
 *     off the loop.
 *
 * Functions return 0 or positive, or -1 with *err filled. ERR_RESOURCE_EXHAUSTED: disk full. ERR_DATA_LOSS: the file is
 * damaged.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"

struct store;

/*
 * Opens or creates (mode 0600) and brings the schema up to date. Refuses a file of a newer Cove
 * (ERR_FAILED_PRECONDITION), one that another process has open (ERR_FAILED_PRECONDITION, after waiting up to a second),
 * and one that is no store (ERR_DATA_LOSS). Blocks.
 */
int store_open(const char *path, struct store **ret_store, struct err *err) WARN_UNUSED;

/* A second, read-only view of an existing store; for worker threads. Writes through it fail. */
int store_open_reader(const char *path, struct store **ret_store, struct err *err) WARN_UNUSED;

/* Commits what is pending (best effort) and frees. NULL is fine. Hooks must be gone. */
void store_close(struct store *s);
DEFINE_AUTO(struct store *, store_close)

const char *store_path(const struct store *s);

/* Ends the batch. Nothing pending: does nothing, costs nothing. After an error nothing of the batch is in the store. */
int store_commit(struct store *s, struct err *err) WARN_UNUSED;

/* Undoes the batch. For tests and for who can't go on; hooks are told. */
void store_rollback(struct store *s);

bool store_pending(const struct store *s); /* is there a batch that waits for store_commit()? */

/* Pages (of 4 KiB) in the write-ahead log after the last commit. Beyond about 4,000 run a checkpoint. */
int store_wal_pages(const struct store *s);

/*
 * What a reader reads in between belongs together: one snapshot, however much is written meanwhile. Short, because the
 * log can't be folded back behind it. Does nothing on the writing store, which is always in step with itself.
 */
int store_read_begin(struct store *s, struct err *err) WARN_UNUSED;
void store_read_end(struct store *s);

/*
 * Folds the log back into the file as far as readers allow; never waits for anyone. By a connection of its own: for a
 * worker thread.
 */
int store_checkpoint(const char *path, struct err *err) WARN_UNUSED;

/*
 * For modules that keep state in memory beside their rows. `committing` may write its last rows of the batch; failing
 * undoes the batch. `committed` and `rolled_back` come when that is a fact; they must not write. Embedded in its owner;
 * any may be NULL.
 */
struct store_hook {
    int (*committing)(void *ctx, struct err *err);
    void (*committed)(void *ctx);
    void (*rolled_back)(void *ctx);
    void *ctx;
    struct list node;
};

void store_hook_add(struct store *s, struct store_hook *hook);
void store_hook_remove(struct store_hook *hook);

/* A few small values of the whole instance (its id, keys), by name. meta_get() appends the value and returns 1, or 0
 * when there is none; to delete one that isn't there is no error. */
int meta_get(struct store *s, const char *key, struct buf *ret_value, struct err *err) WARN_UNUSED;
int meta_put(struct store *s, const char *key, struct str value, struct err *err) WARN_UNUSED;
int meta_delete(struct store *s, const char *key, struct err *err) WARN_UNUSED;

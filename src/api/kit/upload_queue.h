/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files on their way into a sandbox, one after the other.
 *
 * The bytes of a request come in whatever pieces the network makes, and one piece may hold many small files, while the
 * core writes one file at a time and takes bytes when it has credit. The queue is between them. It never refuses bytes:
 * whoever feeds it stops when upload_queue_is_busy() and goes on when on_idle comes, so what waits in it is bounded by
 * one piece of the body.
 */
#pragma once

#include "api/kit/call.h"
#include "sandbox/files/files.h"

/* A file that fails is answered, and the queue does nothing more. */
struct upload_queue_ops {
    void (*on_written)(struct call *c, const struct file_entry *entry); /* one file is complete. May be NULL */
    void (*on_idle)(struct call *c); /* no longer busy; from the loop, never from a call below */
};

/* Of c->sandbox, as this user: c->uploads, which ends with the call. The metadata is borrowed. */
void upload_queue_make(struct call *c, struct str user, const struct pair *metadata, size_t n_metadata,
                       const struct upload_queue_ops *ops);
void upload_queue_free(struct upload_queue *q); /* what is under way stays half written */

/* Begins the next file (path is copied), gives it bytes, completes it. */
void upload_queue_begin(struct upload_queue *q, struct str path);
void upload_queue_data(struct upload_queue *q, struct str bytes);
void upload_queue_end(struct upload_queue *q);

/* Does anything wait for the core? */
bool upload_queue_is_busy(const struct upload_queue *q);
bool upload_queue_is_empty(const struct upload_queue *q); /* every file that was begun is written */

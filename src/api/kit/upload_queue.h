/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files on their way into a sandbox, one after the other.
 *
 * The bytes of a request come in whatever pieces the network makes, and one piece may hold many small files, while the core writes one file at
 * a time and takes bytes when it has credit. The queue is between them. It never refuses bytes: whoever feeds it stops when
 * upload_queue_is_busy() and goes on when on_idle comes, so what waits in it is bounded by one piece of the body.
 */
#pragma once

#include "sandbox/files/files.h"

/* A write that succeeds before it was told the end of the file. */
#define FILES_ENDED_EARLY "the sandbox ended the file before all of it was there"

struct upload_queue;

struct upload_queue_ops {
    void (*on_next)(void *ctx); /* a file is to be begun: upload_queue_write(), as a step of the call */
    void (*on_written)(void *ctx, const struct file_entry *entry); /* one file is complete */
    void (*on_idle)(void *ctx);                         /* no longer busy; from the loop, never from a call below */
    void (*on_error)(void *ctx, const struct err *err); /* a file failed; the queue does nothing more */
};

struct upload_target {
    struct sandbox *sandbox; /* borrowed, as is all of this, for the queue's life */
    const struct actor *actor;
    struct str user;
    const struct pair *metadata;
    size_t n_metadata;
};

struct upload_queue *upload_queue_new(const struct upload_target *target, const struct upload_queue_ops *ops,
                                      void *ctx);
void upload_queue_free(struct upload_queue *q); /* what is under way stays half written */

/* Begins the next file (path is copied), gives it bytes, completes it. */
void upload_queue_begin(struct upload_queue *q, struct str path);
int upload_queue_write(struct upload_queue *q, struct err *err) WARN_UNUSED; /* ERR_HELD: to be called again */
void upload_queue_data(struct upload_queue *q, struct str bytes);
void upload_queue_end(struct upload_queue *q);

/* Does anything wait for the core? */
bool upload_queue_is_busy(const struct upload_queue *q);
bool upload_queue_is_empty(const struct upload_queue *q); /* every file that was begun is written */

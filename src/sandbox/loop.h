/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core adds to libuv's loop: jobs for a later turn (so that no callback re-enters its caller), jobs for the
 * moment before the loop sleeps (so that many small writes become one), alarms (any number on one uv_timer), and two
 * shared buffers.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/list.h"

#include <uv.h>

struct loop;

struct loop *loop_new(uv_loop_t *uv);
void loop_drain(struct loop *l); /* runs what waits for a later turn, until nothing does */
/* Jobs and alarms must be gone or never needed; memory goes in a later turn of the uv loop. */
void loop_free(struct loop *l);
uv_loop_t *loop_uv(struct loop *l);

/* Embedded in its owner; runs once per queueing. Queueing it again while it waits does nothing. */
struct loop_job {
    struct list node;
    void (*fn)(struct loop_job *job);
};
void loop_job_init(struct loop_job *job, void (*fn)(struct loop_job *job));
void loop_later(struct loop *l, struct loop_job *job);        /* in a later turn */
void loop_before_sleep(struct loop *l, struct loop_job *job); /* when all that is ready now was looked at */
static inline void loop_job_cancel(struct loop_job *job)
{
    list_remove(&job->node);
}

/* Embedded in its owner, zeroed before first use; rings once, never before its time. */
struct loop_alarm {
    usec_t at;
    size_t slot; /* place in the heap, 0: not set */
    void (*fn)(struct loop_alarm *alarm);
};
void loop_alarm_set(struct loop *l, struct loop_alarm *alarm, usec_t at_mono, void (*fn)(struct loop_alarm *alarm));
void loop_alarm_clear(struct loop *l, struct loop_alarm *alarm);

/* What one read takes in; valid until the next read of anybody, so only within one callback. */
enum { LOOP_READ_SIZE = 256 * 1024 };
char *loop_read_buffer(struct loop *l);

/* Emptied, to build one request in: valid until the next call. */
struct buf *loop_scratch(struct loop *l);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may compare when, so that nobody's comparisons keep those of others waiting.
 *
 *  1. Each says what it will walk: sandboxes and layers, by their names. Of those that walk the same, DIFF_EACH_RUNNING
 *     run at a time, which leaves slots of the jobs to others, and DIFF_EACH_MOST are taken at all. What may run, runs
 *     in the order in which it came.
 *  2. One whose reader has left does not run: it is reported done with -ECANCELED. When it runs already, it ends by
 *     itself (diff.h).
 *  3. Each that was taken is reported done once, never from inside a call of this module. Their jobs are of this queue
 *     alone.
 */
#pragma once

#include "base/err.h"
#include "coved/diff/diff.h"
#include "coved/workers/job.h"
#include "wire/supervisor.h"

enum { DIFF_EACH_RUNNING = JOBS_MAX / 2, DIFF_EACH_MOST = 16, DIFF_MOST = 64 };

struct diff_queue;

struct diff_order {
    int (*run)(void *ctx); /* as of a job */
    void (*done)(void *ctx, int r);
    void *ctx;
    int fd; /* a pipe's, which the child keeps; borrowed until done */
    size_t n_walked;
    char walked[2 * DIFF_STACK_MAX][SUP_DIGEST_MAX];
};

struct diff_queue *diff_queue_new(struct jobs *jobs);
void diff_queue_free(struct diff_queue *q); /* none may be left */

/* order: copied. ERR_RESOURCE_EXHAUSTED: then nothing is reported. */
int diff_queue_add(struct diff_queue *q, const struct diff_order *order, struct err *err) WARN_UNUSED;

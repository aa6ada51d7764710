/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: what takes too long for coved's one thread (clones, write-outs, walks), each done by a child of its own that is
 * forked for it.
 *
 * Invariants
 *  1. A job that was added is reported done exactly once, however its process ends, from the loop and never from inside
 *     a call of this module; one that was killed before it began, too.
 *  2. At most JOBS_MAX run at a time; the others wait in the order in which they came, background ones behind all
 *     others. Brief ones, which nothing that is copied makes longer, have JOBS_MAX places of their own: a mount doesn't
 *     wait for four clones. So have those that a sandbox can stop: who goes inside one (JOBS_INSIDE_MAX), and who saves
 *     the memory of one. Background ones of these, whose sandbox has done that, begin one at a time, and leave the
 *     other places free.
 *  3. A child has the pool's directories, what its function opens, and nothing else of coved's that somebody waits to
 *     see closed. It ends with coved.
 *
 * A held job is one whose process is there and waits for job_go(): what must be done between ("stand still") is not
 * made longer by the fork.
 */
#pragma once

#include "coved/loop.h"

enum { JOBS_MAX = 4, JOBS_INSIDE_MAX = 2 };

enum job_place { JOB_COMMON, JOB_BRIEF, JOB_INSIDE, JOB_SAVING, JOB_PLACES };

struct jobs;
struct job;

struct job_spec {
    const char *name; /* for messages */
    /* In the child, a copy of coved as it was when the job began. 0, or -errno. `prepare`, or NULL, comes first; when
     * it fails, that is all. */
    int (*prepare)(void *ctx);
    int (*run)(void *ctx);
    /* In coved. r: what run() returned; -EIO when the process ended otherwise, -ECANCELED when it was killed by
     * job_kill(). */
    void (*done)(void *ctx, int r);
    /* In coved, once the process is there and has prepared; may be NULL. A held one waits for job_go() from here on. */
    void (*begun)(void *ctx);
    void *ctx;
    enum job_place place;
    bool is_held, is_background;
    uint32_t limit_ms; /* killed (-ETIMEDOUT) after this time; 0: never */
    /* descriptors that the child keeps beyond its own, numbers unchanged; they stay open until it has begun */
    const int *fds;
    size_t n_fds;
};

/*
 * keep_out: a directory descriptor (or -1) that no child gets. lock: one that every child has: the kernel may be at
 * work for a child that is dead already, and the next coved must not begin before that is over. Call it when all that
 * lives as long as coved is open.
 */
struct jobs *jobs_new(struct coved_loop *loop, int keep_out, int lock);
void jobs_free(struct jobs *jobs); /* none may be left */
size_t jobs_left(const struct jobs *jobs);
usec_t jobs_tick(struct jobs *jobs); /* once a turn; returns when it wants to be called again */

struct job *job_add(struct jobs *jobs, const struct job_spec *spec); /* valid until done() */
void job_go(struct job *job);
void job_kill(struct job *job);

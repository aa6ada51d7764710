/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker asks for, checked field by field, and the answers. The worker may be hostile: nothing it says is
 * believed. */
#pragma once

#include "coved/boxes/boxes.h"
#include "coved/storage/image.h"
#include "coved/storage/layers.h"
#include "coved/storage/reserve.h"
#include "coved/workers/worker.h"

struct diff_queue;

struct requests {
    struct boxes *boxes;
    struct worker *worker;
    struct pool_layers *layers;
    const struct tier_host *host;
    struct diff_queue *compares;
    struct images *images;
    struct reserve reserve;
    uint32_t default_pids;
    /* of the worker: its requests are not answered to its successor, which numbers its requests from 1 again */
    uint32_t generation;
    uint32_t awaits; /* the tag of the SUP_AGAIN before which nothing is looked at; 0: none */
    bool is_again;   /* what is being handled was perhaps asked before, of a coved that died */
    int fd;          /* that came with it, of those that take one; foreign; -1: none */
};

void requests_new_worker(struct requests *r);
void requests_adopt_worker(struct requests *r); /* it asked another coved before */

void requests_handle(struct requests *r, const union sup_message *m, int fd); /* takes fd (or -1) */

/* For struct boxes_events; ctx: struct requests. */
void requests_created(void *ctx, uint64_t asked, int session_fd, const struct err *err);
void requests_stored(void *ctx, uint64_t asked, const struct stored *made, const struct err *err);
void requests_done(void *ctx, uint64_t asked, const struct err *err);
void requests_ended(void *ctx, const struct sup_ended *ended);
void requests_seen(void *ctx, const struct sup_seen *seen, size_t n);
bool requests_see(void *ctx);

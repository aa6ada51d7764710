/* SPDX-License-Identifier: Apache-2.0 */
/* SUP_DIFF: determines what to compare, and starts a job for it (diff.h) when its turn comes (diff_queue.h). */
#pragma once

#include "base/err.h"
#include "coved/boxes/boxes.h"

struct diff_queue;

/*
 * fd: taken, also when this fails. done is called when all is written, or with what went wrong; ERR_RESOURCE_EXHAUSTED:
 * after DIFF_LOOKUPS_MAX look-ups; ERR_ABORTED: a side was removed meanwhile; ERR_OUT_OF_RANGE: something lies too
 * deep, all else was told. At once: ERR_NOT_FOUND, ERR_RESOURCE_EXHAUSTED.
 */
int compare_start(struct diff_queue *queue, struct boxes *boxes, const struct tier_host *host, const struct sup_diff *m,
                  int fd, uint64_t asked, void (*done)(void *ctx, uint64_t asked, const struct err *err), void *ctx,
                  struct err *err) WARN_UNUSED;

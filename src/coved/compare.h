/* SPDX-License-Identifier: Apache-2.0 */
/* SUP_DIFF: finds out what is to be compared, and has a job do it (diff.h). */
#pragma once

#include "base/err.h"
#include "coved/boxes.h"

struct jobs;
struct tier_host;

/*
 * fd: taken, also when this fails. done is called when all is written, or with what went wrong. ERR_NOT_FOUND. Several jobs that their reader keeps waiting
 * must not keep others waiting: `jobs` are their own.
 */
int compare_start(struct jobs *jobs, struct boxes *boxes, const struct tier_host *host, const struct sup_diff *m,
                  int fd, uint64_t asked, void (*done)(void *ctx, uint64_t asked, const struct err *err), void *ctx,
                  struct err *err) WARN_UNUSED;

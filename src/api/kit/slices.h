/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests whose work is long and done on the loop, as walking through a whole log is: each does a slice of it, says
 * slice_later(), and goes on in a later turn. Those that wait take turns, and all of them together get SLICES_TURN_USEC
 * of one turn of the loop (and one slice at least), so that other requests and timers are late by no more than that,
 * however many there are.
 */
#pragma once

#include "base/clock.h"
#include "base/list.h"

#include <uv.h>

#define SLICE_USEC (1 * USEC_PER_MS)       /* a slice ends after so long, */
enum { SLICE_STEPS = 500 };                /* or so many events */
#define SLICES_TURN_USEC (2 * USEC_PER_MS) /* in each turn of the loop */

struct slices {
    struct list waiting;
    uv_idle_t *idle; /* owned, active while somebody waits; its memory outlives us until the loop has closed it */
};

void slices_init(struct slices *s, uv_loop_t *loop);
void slices_fini(struct slices *s); /* forgets who waits; harmless on zeroes */

/* Embedded in its owner. fn is called once for each slice_later(), and may say it again. */
struct slice {
    struct list node;
    void (*fn)(struct slice *slice);
};

void slice_init(struct slice *slice, void (*fn)(struct slice *slice));
void slice_later(struct slices *s, struct slice *slice); /* nothing new when it waits already */
void slice_cancel(struct slice *slice);                  /* harmless when it does not wait */

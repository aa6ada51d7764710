/* SPDX-License-Identifier: Apache-2.0 */
/* Many deadlines over one libuv timer: keepalives and time limits of open requests. Callbacks come from the loop. */
#pragma once

#include "base/clock.h"
#include "base/list.h"

#include <uv.h>

struct timer {
    struct list node;
    usec_t due;
    void (*fn)(struct timer *t);
};

struct timers {
    struct list list; /* by due, soonest first */
    uv_timer_t *uv;   /* owned; its memory outlives us until the loop closed it */
};

void timers_init(struct timers *ts, uv_loop_t *loop);
void timers_fini(struct timers *ts); /* forgets all that are set */

void timer_init(struct timer *t, void (*fn)(struct timer *t));
void timer_set(struct timers *ts, struct timer *t, uint64_t ms); /* from now; replaces what was set */
void timer_stop(struct timer *t);                                /* harmless when not set */

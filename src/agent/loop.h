/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's event loop: level-triggered epoll and timers, one thread. Callbacks may remove any io or timer, their own
 * included.
 *
 * A descriptor comes into the epoll set once, where the kernel may have no room for it: beginning can fail, and whoever
 * begins something can say so. From then on it stays until it is closed: pausing and going on can't fail.
 */
#pragma once

#include "base/clock.h"
#include "base/list.h"

struct loop_io {
    int fd;                                             /* the owner's; -1 when there is none */
    uint32_t events;                                    /* what is waited for; 0: nothing, ready() is not called */
    bool is_in_set;                                     /* in the epoll set */
    void (*ready)(struct loop_io *io, uint32_t events); /* EPOLLERR and EPOLLHUP come unasked */
};

struct loop_timer {
    struct list node; /* empty when it isn't set */
    usec_t at;
    void (*fire)(struct loop_timer *timer);
};

struct agent_loop {
    int epoll;
    struct list timers; /* soonest first */
    struct loop_io **batch;
    int batch_n;
};

#define LOOP_IO(fn) ((struct loop_io){.fd = -1, .ready = (fn)})

int loop_init(struct agent_loop *l) WARN_UNUSED;
void loop_fini(struct agent_loop *l);

/* Waits for exactly these events from now on; 0 is a pause. -errno (ENOMEM, ENOSPC): only the first time that it waits
 * for any. */
int loop_set(struct agent_loop *l, struct loop_io *io, uint32_t events);
void loop_close(struct agent_loop *l, struct loop_io *io); /* a descriptor in the set is closed by this alone */

/* `to` has the descriptor from now on, and the place in the set, paused. */
void loop_move(struct agent_loop *l, struct loop_io *from, struct loop_io *to);

void loop_timer_init(struct loop_timer *t, void (*fire)(struct loop_timer *timer));
void loop_timer_set(struct agent_loop *l, struct loop_timer *t, usec_t after); /* replaces what was set */
void loop_timer_clear(struct loop_timer *t);

/* One round: waits (not at all when `busy`), calls what is ready, then what is due. */
int loop_turn(struct agent_loop *l, bool busy) WARN_UNUSED;

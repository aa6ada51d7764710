/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's event loop: level-triggered epoll and timers, one thread. Callbacks may remove any io or timer, their own included. */
#pragma once

#include "base/clock.h"
#include "base/def.h"
#include "base/list.h"

struct loop_io {
    int fd;                                             /* the owner's; -1 when there is none */
    uint32_t events;                                    /* what is waited for; 0: not in the epoll set at all */
    void (*ready)(struct loop_io *io, uint32_t events); /* EPOLLERR and EPOLLHUP come unasked */
};

struct loop_timer {
    struct list node; /* empty when it isn't set */
    usec_t at;
    void (*fire)(struct loop_timer *timer);
};

struct loop {
    int epoll;
    struct list timers; /* soonest first */
    struct loop_io **batch;
    int batch_n;
};

#define LOOP_IO(fn) ((struct loop_io){.fd = -1, .ready = (fn)})

int loop_init(struct loop *l) WARN_UNUSED;
void loop_fini(struct loop *l);

/* Waits for exactly these events from now on. 0 takes the descriptor out: do it before the descriptor is closed (or call loop_close()). */
int loop_set(struct loop *l, struct loop_io *io, uint32_t events);
void loop_close(struct loop *l, struct loop_io *io);

void loop_timer_init(struct loop_timer *t, void (*fire)(struct loop_timer *timer));
void loop_timer_set(struct loop *l, struct loop_timer *t, usec_t after); /* replaces what was set */
void loop_timer_clear(struct loop_timer *t);

/* One round: waits (not at all when `busy`), calls what is ready, then what is due. */
int loop_turn(struct loop *l, bool busy) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/* coved's event loop: epoll over a handful of kinds of descriptor, and one deadline. */
#pragma once

#include "base/clock.h"

struct coved_loop;

/* Embedded in its owner. The descriptor stays the owner's. */
struct source {
    int fd; /* -1: not in the loop */
    void (*fn)(struct source *s, uint32_t events);
};

int loop_new(struct coved_loop **ret_loop) WARN_UNUSED;
void loop_free(struct coved_loop *l);

int loop_add(struct coved_loop *l, struct source *s, int fd, uint32_t events,
             void (*fn)(struct source *s, uint32_t events)) WARN_UNUSED;

/* Waits for these of it from now on. */
int loop_change(struct coved_loop *l, struct source *s, uint32_t events) WARN_UNUSED;

/* Also from inside its own or another source's callback: events already fetched for it are dropped. */
void loop_remove(struct coved_loop *l, struct source *s);

/* Runs what is ready. Waits until `deadline` (monotonic; 0: don't wait, UINT64_MAX: for ever). Returns the number of
 * events, or -errno. */
int loop_turn(struct coved_loop *l, usec_t deadline) WARN_UNUSED;

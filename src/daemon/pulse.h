/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers coved's question whether this worker's loop still turns (coved/workers/pulse.h), from that loop and in no
 * other way. The question says how coved itself is.
 */
#pragma once

#include "base/clock.h"

#include <uv.h>

struct pulse {
    uv_poll_t poll;
    int fd;
    char question; /* the latest */
    usec_t asked;  /* monotonic; 0: never */
};

enum pulse_said {
    PULSE_SAYS_NOTHING, /* coved, for longer than it may */
    PULSE_SAYS_FINE,
    PULSE_SAYS_NO_ROOM, /* no sandbox is made for want of room on the disk */
    PULSE_SAYS_STOPS,
};
enum pulse_said pulse_said(const struct pulse *p, usec_t now);

/* fd: a socket, borrowed; -1: nobody asks. 0 or a negative error. */
int pulse_start(struct pulse *p, uv_loop_t *loop, int fd);
void pulse_stop(struct pulse *p); /* its handle is closed in a later turn */

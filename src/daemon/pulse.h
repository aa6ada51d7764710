/* SPDX-License-Identifier: Apache-2.0 */
/* Answers coved's question whether this worker's loop still turns (coved/pulse.h), from that loop and in no other way. */
#pragma once

#include "base/def.h"

#include <uv.h>

struct pulse {
    uv_poll_t poll;
    int fd;
};

/* fd: a socket, borrowed; -1: nobody asks. 0 or a negative error. */
int pulse_start(struct pulse *p, uv_loop_t *loop, int fd);
void pulse_stop(struct pulse *p); /* its handle is closed in a later turn */

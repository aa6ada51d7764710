/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes whose process has ended while others still write into them ("server &"). Nobody follows that output any more;
 * it is read and dropped, because closing the pipe would kill the writer with SIGPIPE at its next line.
 */
#pragma once

#include "agent/loop.h"

struct agent;

enum { SINKS_MAX = 256 }; /* beyond, the pipe is closed after all */

/* Takes the descriptor out of io, which is in the loop or not. */
void sink_take(struct agent *a, struct loop_io *io);

void sink_close_all(struct agent *a);

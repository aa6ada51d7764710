/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of which we know that it opens a certain path for writing gets a descriptor of ours instead, as it is: so a
 * monitor maps a machine's memory privately from a file that it can't write. A system call filter of its own stops it
 * there, and whoever started it answers.
 */
#pragma once

#include "base/clock.h"

/* In the child, when no privilege can be gained any more, before it executes the program. The descriptor by which its
 * parent answers, or -errno. */
int lend_ask(void) WARN_UNUSED;

/*
 * In the parent, which may look into it: waits for the next open(path, O_RDWR) of the program, which waits from then
 * on. -ETIMEDOUT; -ESRCH: it ended before.
 */
int lend_await(int listener, const char *path, usec_t until, uint64_t *ret_asked) WARN_UNUSED;
int lend(int listener, uint64_t asked, int fd) WARN_UNUSED; /* it gets this one, and goes on. -ENOENT: it ended */

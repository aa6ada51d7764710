/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has another process map a file: its main thread makes one system call for us, in front of the next of its own. For a
 * monitor that knows nothing of it. That one is hostile: nothing that it says counts, and it can keep us for so long
 * only; it dies if it isn't certain that it goes on as it was.
 */
#pragma once

#include "base/clock.h"

/*
 * Whoever calls has no threads, and may trace it. The file that it has open as `fd` becomes its memory from `at` on,
 * privately. 0; -ESRCH: it ended; -ETIMEDOUT: its thread didn't come to a system call, and nothing happened to it, or
 * it didn't come back from that, and was killed; another -errno: it wasn't mapped.
 */
int remap(int pidfd, pid_t pid, uint64_t at, uint64_t bytes, int fd, usec_t patience) WARN_UNUSED;

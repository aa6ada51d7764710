/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's memory in a file, and back. The monitor has it as a private mapping of a file: of /dev/zero, or of one
 * that was saved. Nobody writes what was saved again, so any number of machines go on from it and share what they leave
 * as it is. The pages that a machine did write are its monitor's own; they are read from outside while it stands still,
 * so that it need not know of any of this.
 */
#pragma once

#include "base/clock.h"

/*
 * proc_fd: a /proc in which `parent` is the process whose only child the monitor is, `uid` whom both memory and monitor
 * belong to. Into `name` in dir_fd, which must not be there. *ret_own: so much of it was the monitor's own. -ESRCH:
 * there is no such process; -ENODATA: it has no memory of that size.
 */
int ram_save(int proc_fd, pid_t parent, uid_t uid, uint64_t bytes, int dir_fd, const char *name,
             uint64_t *ret_own) WARN_UNUSED;

/*
 * A machine that has not run since goes on from that as others do, and gives up the pages of its own. Its monitor,
 * which isn't frozen, has the file open already, or will within `patience`; it is killed if what becomes of its memory
 * isn't certain. Whoever calls has no threads. -errno: in general the machine's memory is as it was.
 */
int ram_share(int proc_fd, pid_t parent, uid_t uid, uint64_t bytes, int file_fd, usec_t patience) WARN_UNUSED;

/* `to`, empty and of the same size, becomes the same: shared where the file system can, else without its holes. */
int ram_clone(int from, int to) WARN_UNUSED;

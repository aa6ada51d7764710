/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that were written on the file system of the pool, by whichever mount, as the kernel says it (one fanotify
 * group). The file is looked at when the event is read: it may be gone by then, or written once more. Needs
 * CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH.
 */
#pragma once

#include "base/def.h"

struct filewatch;

/* Borrowed until the callback returns. */
struct filewatch_event {
    const char *path; /* relative to the pool's directory; NULL: the kernel dropped an unknown number of events */
    pid_t host_pid;   /* who closed it, or moved it there; 0: unknown */
    const char *from; /* it was moved from there; NULL: it was written in place */
    int dir_fd;       /* for filewatch_look() */
    const char *name;
};

/* dir_fd: the pool's directory, borrowed. -EXDEV, -EOPNOTSUPP, -EPERM: its file system can't be watched so. */
int filewatch_open(int dir_fd, struct filewatch **ret_watch) WARN_UNUSED;
void filewatch_close(struct filewatch *w); /* accepts NULL */
int filewatch_fd(struct filewatch *w);

/*
 * Calls fn for what one reading gives, of what is below `top` ("boxes/"), and was there when it was moved; returns for
 * how many events there were, 0: none, or -errno.
 */
int filewatch_read(struct filewatch *w, const char *top, void (*fn)(void *ctx, const struct filewatch_event *e),
                   void *ctx) WARN_UNUSED;

/* How many bytes it has now. False: it is gone, or is no regular file. */
bool filewatch_look(const struct filewatch_event *e, uint64_t *ret_bytes);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that `coved prepare` starts, and the signals that end it. None of them outlives it, however it ends, nor
 * does what they have started in their turn. INT, TERM and HUP wait while something is half made, so that it is removed
 * first; then they do what they always do.
 */
#pragma once

#include "base/err.h"

#include <signal.h>

struct child_signals {
    int fd; /* readable: the process was told to end */
    sigset_t before;
};

/* Signals that are ignored or blocked, as under nohup, stay so. SIGPIPE is ignored from here on. */
int child_hold_signals(struct child_signals *ret_signals, struct err *err) WARN_UNUSED;
bool child_is_told(const struct child_signals *s);
int child_told(struct err *err);                     /* the error for it; -1 */
void child_release_signals(struct child_signals *s); /* does not return when one came */

struct child {
    pid_t pid; /* 0: none */
    int fd;    /* the end of its pipe that is ours; -1: none */
};

/* How one is started. */
struct child_how {
    const struct child_signals *signals;
    int piped;       /* which of its standard descriptors is on a pipe */
    int at, to;      /* its descriptor `at` becomes `to`; -1: stays */
    const char *dir; /* NULL, or: it has process ids and mounts of its own, which end with it, and this is its TMPDIR */
};

int child_start(char *const argv[], const struct child_how *how, struct child *ret_child, struct err *err) WARN_UNUSED;

/* Waits until the child has ended, or until this process is told to end: then the child keeps running. */
int child_finish(struct child *c, const struct child_signals *s, const char *what, struct err *err) WARN_UNUSED;

void child_abandon(struct child *c); /* kills it; also none, and one that has ended */

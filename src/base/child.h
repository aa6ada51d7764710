/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that this one starts: their end, their signals, and what a program prints. All of it blocks. */
#pragma once

#include "base/str.h"

struct buf;

enum { CHILD_NO_PROGRAM = 127, CHILD_SIGNAL = 256 };

/* Until it has ended: its exit code, CHILD_SIGNAL + the signal that ended it, or -errno; -ECHILD for -1. */
int child_wait(pid_t pid);
void child_kill(pid_t pid); /* and waits until it has ended; nothing for 0 and -1 */

/* What execve(2) and its like take: CHILD_ARGV("tar", "-C", directory). Valid to the end of the block. */
#define CHILD_ARGV(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__, NULL})

void child_unblock(void); /* in one, before it executes a program: no signal is blocked any more */

/*
 * Runs a program to its end and appends what it prints, as far as there is room (-ENOBUFS). What it says on stderr goes
 * where ours does. As child_wait(); CHILD_NO_PROGRAM: it can't be executed.
 */
int child_ask(const char *program, char *const argv[], struct buf *output) WARN_UNUSED;

/* A file without a name that holds this text, from whose beginning a child reads it; or -errno. */
int child_input(struct str text) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe tries attacks, one a verb, and says what the kernel answered; it judges nothing. The same program is the
 * control outside of a sandbox and the attack inside. All verbs are harmless where they succeed: what they ask for is
 * wrong in a way that is only looked at after the right to ask, or is undone with the verb's process.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* What a verb returns: REACHED, an errno, or ABSENT when it can't be tried at all. */
enum { REACHED = 0, ABSENT = -1 };

struct verb {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0]: the first argument */
};

extern const struct verb kernel_verbs[], process_verbs[], file_verbs[], network_verbs[], hog_verbs[];
extern const size_t n_kernel_verbs, n_process_verbs, n_file_verbs, n_network_verbs, n_hog_verbs;

/* Adds to the text that is printed behind the result. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A result of a call that returns -1 and errno. */
int result_of(long r);

/* The same, where these errors come from code that only looks at a caller who had the right. Ended by 0. */
int reached_if(long r, const int *errors);
#define REACHED_IF(r, ...) reached_if((r), (const int[]){__VA_ARGS__, 0})

long number(const char *text);                      /* decimal, 0x, or octal; exits on anything else */
const char *argument(int argc, char **argv, int n); /* exits when there is none */
void say_and_hold(const char *what, long count,
                  unsigned seconds); /* prints a line, then keeps what it has until it is killed */

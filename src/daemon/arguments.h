/* SPDX-License-Identifier: Apache-2.0 */
/* What the command lines of both workers have in common. coved writes them, so every mistake is an error. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { ARGUMENTS_MAX = 40 };

/* One of them, and the member of the options that it goes to. The last of a table has no name. */
struct argument {
    const char *name;
    enum { ARGUMENT_TEXT, ARGUMENT_FD, ARGUMENT_U32, ARGUMENT_U64, ARGUMENT_FLAG, ARGUMENT_TAKEN } kind;
    size_t at;
    uint64_t most;                                    /* ARGUMENT_U32; 0: all of them */
    bool is_never_empty;                              /* ARGUMENT_TEXT */
    int (*take)(void *options, const char *argument); /* ARGUMENT_TAKEN: 0 or -errno */
};

/* 0 or -errno: -EINVAL is no number, -ERANGE more than `most`. */
int argument_number(struct str text, uint64_t most, uint64_t *ret_value) WARN_UNUSED;
int argument_fd(struct str text, int *ret_fd) WARN_UNUSED; /* an open one; close-on-exec from then on */

/* No operands. */
int arguments_parse(int argc, char **argv, const struct argument *known, void *options, struct err *err) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/* What the command lines of both workers have in common. coved writes them, so every mistake is an error. */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <getopt.h>

/* 0 or -errno: -EINVAL is no number, -ERANGE more than `most`. */
int argument_number(struct str text, uint64_t most, uint64_t *ret_value) WARN_UNUSED;
int argument_fd(struct str text, int *ret_fd) WARN_UNUSED; /* an open one; close-on-exec from then on */

/* apply: 0 or -errno, for each option in turn. No operands. */
int arguments_parse(int argc, char **argv, const struct option *known,
                    int (*apply)(void *options, int id, const char *argument), void *options,
                    struct err *err) WARN_UNUSED;

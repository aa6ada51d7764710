/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A secret's value from where nobody else sees it: a file, a pipe, or the person's terminal without echo. It is read
 * into locked memory that is kept out of core files, and wiped.
 */
#pragma once

#include "cli/command.h"
#include "wire/vault.h"

struct secret_input {
    char *bytes; /* SECRET_INPUT_ROOM; mapped */
    size_t n;    /* without one line break at the end */
};

enum { SECRET_INPUT_ROOM = VAULT_VALUE_MAX + 16 };

/* path NULL: stdin, with a prompt when that is a terminal. -1: ctx->err, which does not hold the value. Blocks. */
int secret_input_read(struct context *ctx, const char *name, const char *path,
                      struct secret_input *ret_input) WARN_UNUSED;
void secret_input_wipe(struct secret_input *input);

static inline UNUSED void secret_input_auto_(struct secret_input *input)
{
    secret_input_wipe(input);
}
#define AUTO_SECRET_INPUT __attribute__((cleanup(secret_input_auto_)))

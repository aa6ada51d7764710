/* SPDX-License-Identifier: Apache-2.0 */
/* What cove-api is told of the configuration: by its arguments, which anybody on the machine can read. */
#pragma once

#include "config/config.h"

enum { ARGUMENTS_MAX = 32 };

struct arguments {
    char *at[ARGUMENTS_MAX + 1]; /* owned; NULL-terminated */
};

/* In place of those that are there. domain: as cove-api takes it, NULL: none. disk_bytes: of a sandbox that nobody gave a limit. */
void arguments_make(struct arguments *a, const struct config *f, const char *domain, uint64_t disk_bytes);
void arguments_clear(struct arguments *a);

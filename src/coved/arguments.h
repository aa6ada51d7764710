/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the configuration that cove-api gets as arguments, which anybody on the machine can read. */
#pragma once

#include "base/sha1.h"
#include "config/config.h"
#include "wire/tiers.h"

enum { ARGUMENTS_MAX = 40 };

struct arguments {
    char *at[ARGUMENTS_MAX + 1]; /* owned; NULL-terminated */
};

/* In place of those that are there. domain: as cove-api takes it, NULL: none. disk_bytes: of a sandbox that nobody gave
 * a limit. */
void arguments_make(struct arguments *a, const struct config *f, const char *domain, uint64_t disk_bytes,
                    const struct tier_list *tiers);
void arguments_clear(struct arguments *a);

/*
 * A digest of all that cove-api is started with: of what was configured, and of nothing that was measured. Otherwise a
 * coved that crashed would be followed by another cove-api.
 */
void arguments_digest(const struct config *f, const char *domain, const char *key, struct str pem,
                      uint8_t ret_digest[static SHA1_BYTES]);
void arguments_add(struct sha1 *s, char *const *argv);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed URLs: who knows a sandbox's access token can let others read or write one path, for a time.
 *
 *   signature = "v1_" + base64, without padding, of SHA-256 over "path:operation:user:token" [":" expiration]
 */
#pragma once

#include "base/str.h"

enum { SIGNATURE_MAX = 3 + 43 + 1 };

struct signature {
    struct str path;      /* as in the query, decoded; not resolved */
    struct str operation; /* "read" or "write" */
    struct str user;      /* "" when the query names none */
    bool expires;
    int64_t expiration; /* seconds since 1970 */
};

void signature_make(const struct signature *what, struct str token, char ret_text[static SIGNATURE_MAX]);

/* In constant time for texts of the right length. Says nothing of expiry. */
bool signature_matches(const struct signature *what, struct str token, struct str given);

/* The same for many tokens: what stands before the token, which a stranger may have made long, is hashed once. */
struct signer;
struct signer *signer_new(const struct signature *what); /* what: borrowed */
bool signer_matches(const struct signer *s, struct str token, struct str given);
void signer_free(struct signer *s);
DEFINE_AUTO(struct signer *, signer_free)

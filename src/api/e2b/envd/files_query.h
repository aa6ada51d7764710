/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of /files, and whether they prove that their sender may do what it asks. */
#pragma once

#include "api/e2b/envd/signature.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"

struct files_query {
    struct str path, user, signature; /* p NULL: absent; user is "" then */
    bool expires;
    int64_t expiration; /* seconds since 1970 */
};

/* query: raw. A malformed escape makes its parameter absent; one that is given twice or is no number is
 * ERR_INVALID_ARGUMENT. */
int files_query_parse(struct str query, struct arena *arena, struct files_query *ret_query,
                      struct err *err) WARN_UNUSED;

enum files_operation { FILES_READ, FILES_WRITE };

/* What its signature must be of. */
struct signature files_query_signed(const struct files_query *q, enum files_operation operation);

/* Signed with this token? Expiry is not looked at. */
bool files_query_signed_by(const struct files_query *q, enum files_operation operation, struct str token);

/*
 * token: the sandbox's, p NULL when it has none; header: X-Access-Token, p NULL when absent; now: real. NULL when
 * allowed, else what to answer with 401.
 */
const char *files_query_refused(const struct files_query *q, enum files_operation operation, struct str token,
                                struct str header, usec_t now);

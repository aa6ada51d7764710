/* SPDX-License-Identifier: Apache-2.0 */
/* What a server answers with 401: WWW-Authenticate (RFC 9110, section 11.6.1), of which Bearer with a realm and Basic
 * are understood. */
#pragma once

#include "base/str.h"

enum { CHALLENGE_VALUE_MAX = 1024 };

enum challenge_scheme { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER };

struct challenge {
    enum challenge_scheme scheme;
    char realm[CHALLENGE_VALUE_MAX]; /* Bearer: the URL that gives tokens; "" when absent */
    char service[CHALLENGE_VALUE_MAX];
    char scope[CHALLENGE_VALUE_MAX];
};

/*
 * Reads one header's value, which may hold several challenges; the best is taken (Bearer over Basic). A value that
 * breaks the grammar or is too long gives CHALLENGE_NONE. Parameters hold no control characters.
 */
void challenge_parse(struct str header, struct challenge *ret_challenge);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placeholders in parts of a request become values, each encoded as that part wants it. Texts are walked through once:
 * what was put in is not looked at again, and where two placeholders begin at the same byte, the longer one counts.
 */
#pragma once

#include "base/buf.h"

enum { SUBSTITUTES_MAX = 20 };

enum substitute_code {
    SUBSTITUTE_RAW,
    SUBSTITUTE_URL, /* all but unreserved characters become %XX: in a path no value makes a segment, in a query no parameter */
    SUBSTITUTE_FORM, /* the same, with "+" for a blank */
    SUBSTITUTE_JSON, /* in a string */
};

struct substitute {
    struct str placeholder; /* not empty */
    struct str value;
};

/* How a body of this Content-Type encodes. False: in such a body nothing is replaced (multipart). */
bool substitute_code_of(struct str content_type, enum substitute_code *ret_code);

/* Which of them occur, as bits. */
unsigned substitute_find(struct str text, const struct substitute *all, size_t n);

/*
 * Appends the text with what it has replaced. The memory is taken at once, so that nothing that grows leaves a copy of
 * a value behind; the caller wipes it. 0, or -ENOBUFS when it becomes longer than `to` may.
 */
int substitute(struct str text, const struct substitute *all, size_t n, enum substitute_code code,
               struct buf *to) WARN_UNUSED;

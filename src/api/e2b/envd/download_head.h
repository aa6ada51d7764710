/* SPDX-License-Identifier: Apache-2.0 */
/* Header values of a download. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"

struct content_type {
    const char *name;
    bool packed; /* compressing it again gains nothing */
};

/* By the name's extension; NULL when that says nothing. */
const struct content_type *content_type_by_name(struct str name);

/* By the first bytes: text, or just bytes. */
const struct content_type *content_type_by_bytes(struct str first);

/* A browser shows or plays it and runs nothing of it. */
bool content_type_is_inert(const struct content_type *type);

/* "inline; filename=a.txt", or "attachment" for what a browser could run; quoted or in the form of RFC 5987 where that
 * is needed. */
void content_disposition_append(struct buf *b, const struct content_type *type, struct str name);

enum { HTTP_DATE_MAX = 32 };
void http_date_format(usec_t real, char ret_text[static HTTP_DATE_MAX]); /* "Tue, 14 Nov 2023 22:13:20 GMT" */
int http_date_parse(struct str text, usec_t *ret_real) WARN_UNUSED;

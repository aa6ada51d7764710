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

/* "inline; filename=a.txt", quoted or in the form of RFC 5987 where that is needed. */
void content_disposition_append(struct buf *b, struct str name);

enum { HTTP_DATE_MAX = 32 };
void http_date_format(usec_t real, char ret_text[static HTTP_DATE_MAX]); /* "Tue, 14 Nov 2023 22:13:20 GMT" */
int http_date_parse(struct str text, usec_t *ret_real) WARN_UNUSED;

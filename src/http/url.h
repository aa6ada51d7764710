/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request targets, percent-encoding, query strings. Everything borrows from its input unless an arena is named.
 *
 *   struct str rest = http_query(req);
 *   for (struct url_param p; url_query_next(&rest, &p);) ...       p.name and p.value are still encoded
 */
#pragma once

#include "base/arena.h"

struct buf;

enum url_form {
    URL_PATH, /* '+' is itself */
    URL_QUERY /* '+' is a blank */
};

/*
 * Decoded; the input itself when there is nothing to decode. May hold NUL (%00). -EINVAL for '%' without two hex
 * digits.
 */
int url_decode(struct arena *a, struct str s, enum url_form form, struct str *ret) WARN_UNUSED;

/* Encodes all but RFC 3986 unreserved characters; keep_slash leaves '/' alone, for paths. */
int url_encode(struct buf *b, struct str s, bool keep_slash);

/*
 * Splits "/path?query" or "http://host/path?query" (whose host is dropped) at the first '?'; -EINVAL for anything else
 * but "*". A fragment is not allowed in a request and refused.
 */
int url_split_target(struct str target, struct str *ret_path, struct str *ret_query) WARN_UNUSED;

struct url_param {
    struct str name, value; /* encoded; value is empty and not NULL after "name=", NULL after "name" */
};

/* Next parameter between '&'; empty ones ("&&") are skipped. False at the end. */
bool url_query_next(struct str *query, struct url_param *ret_param);

/* The first of that name (compared decoded), decoded. 1, 0 when absent, -EINVAL for a malformed escape in it. */
int url_query_get(struct arena *a, struct str query, const char *name, struct str *ret_value) WARN_UNUSED;

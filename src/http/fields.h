/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a message as llhttp delivers it, piece by piece: shared by all that read HTTP/1. What fields_at() and
 * fields_get() say is valid until the next fields_add_*() or fields_reset().
 */
#pragma once

#include "base/buf.h"
#include "http/message.h"

enum { FIELDS_MAX = 200 };

struct fields {
    struct buf text;
    struct span {
        uint32_t at, n;
    } line; /* of the request's or the answer's line: the target, or the reason */
    struct {
        struct span name, value;
    } at[FIELDS_MAX];
    unsigned n, most;
    bool name_done;
};

void fields_init(struct fields *f, unsigned most, size_t bytes); /* most <= FIELDS_MAX; bytes of all text together */
void fields_fini(struct fields *f);
void fields_reset(struct fields *f);

/* For llhttp's on_url or on_status, on_header_field, on_header_field_complete and on_header_value. 0, -E2BIG for too
 * many, -ENOBUFS for too much text, -EINVAL for one without a name. */
int fields_add_line(struct fields *f, const char *p, size_t n) WARN_UNUSED;
int fields_add_name(struct fields *f, const char *p, size_t n) WARN_UNUSED;
int fields_name_done(struct fields *f) WARN_UNUSED;
int fields_add_value(struct fields *f, const char *p, size_t n) WARN_UNUSED;

int fields_status(int r, const char **ret_why); /* for who sent that: 400 or 431 */
struct str fields_line(const struct fields *f);

struct http_header fields_at(const struct fields *f, unsigned i); /* the value trimmed */
struct str fields_get(const struct fields *f, struct str name);   /* the first; p is NULL when absent */

/*
 * Does it concern this connection alone (RFC 9110 section 7.6.1)? Connection, what it names, transfer-encoding and the
 * like.
 */
bool fields_is_hop_by_hop(const struct http_header *headers, size_t n, struct str name);

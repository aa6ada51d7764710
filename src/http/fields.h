/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a response as llhttp delivers it, piece by piece: shared by the proxy and the client. Private to http.
 * The strings are valid until the next fields_add_*() or fields_reset().
 */
#pragma once

#include "base/buf.h"
#include "http/message.h"

enum { FIELDS_MAX = 128, FIELDS_BYTES_MAX = 32 * 1024 };

struct fields {
    struct buf text;
    struct {
        uint32_t name_at, name_n, value_at, value_n;
    } at[FIELDS_MAX];
    unsigned n;
    bool name_done;
};

void fields_init(struct fields *f);
void fields_fini(struct fields *f);
void fields_reset(struct fields *f);

/* For llhttp's on_header_field, on_header_field_complete and on_header_value. 0, or -1 when too many or too long. */
int fields_add_name(struct fields *f, const char *p, size_t n) WARN_UNUSED;
int fields_name_done(struct fields *f) WARN_UNUSED;
int fields_add_value(struct fields *f, const char *p, size_t n) WARN_UNUSED;

struct http_header fields_at(const struct fields *f, unsigned i); /* the value trimmed */
struct str fields_get(const struct fields *f, struct str name);   /* the first; p is NULL when absent */

/*
 * Does it concern this connection alone (RFC 9110 section 7.6.1)? Connection, what it names, transfer-encoding and the
 * like.
 */
bool fields_is_hop_by_hop(const struct http_header *headers, size_t n, struct str name);

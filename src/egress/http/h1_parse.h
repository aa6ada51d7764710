/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of an HTTP/1 connection, from bytes to heads, pieces of body and trailers. Strict: what another
 * implementation could read differently is refused, in requests and in answers alike.
 *
 *   h1_parser_begin(&p, ...);
 *   while ((event = h1_parser_next(&p, &in, &piece)) != H1_MORE) ...
 *
 * Each call tells one thing and leaves in `in` what is behind it. After H1_END comes h1_parser_begin() again; after
 * H1_BAD nothing.
 */
#pragma once

#include "egress/http/exchange.h"
#include "http/fields.h"

#include <llhttp.h>

enum h1_event { H1_MORE, H1_HEAD, H1_BODY, H1_END, H1_BAD };
enum h1_framing { H1_NO_BODY, H1_LENGTH, H1_CHUNKED, H1_UNTIL_CLOSE };

struct h1_parser {
    /* After H1_HEAD; the texts until the next call. */
    struct str method, target; /* of a request */
    int status;                /* of an answer */
    bool is_http10, keep_alive;
    enum h1_framing framing;
    bool has_length; /* also of a message without body: HEAD, 304 */
    uint64_t length;
    struct fields fields; /* names of requests in lower case, of answers as sent; after H1_END: trailers */
    /* After H1_BAD. */
    int bad_status;
    const char *bad;

    /* The rest is the parser's. */
    llhttp_t llhttp;
    struct str body;
    size_t head_bytes, line_bytes; /* of all, of this one */
    char last;                     /* the byte before */
    char tail[10];                 /* of the request line: "HTTP/1.1\r\n" */
    uint8_t place;
    bool is_answer, bodiless, paused, told_head, head_done, body_there, message_done, first_line_done;
};

void h1_parser_init(struct h1_parser *p, bool is_answer);
void h1_parser_fini(struct h1_parser *p);

/* head_only: the answer to HEAD. */
void h1_parser_begin(struct h1_parser *p, bool head_only);
enum h1_event h1_parser_next(struct h1_parser *p, struct str *in, struct str *ret_piece) WARN_UNUSED;

/* Anything of the message seen yet? */
bool h1_parser_begun(const struct h1_parser *p);

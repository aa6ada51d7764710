/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of HTTP/2 exchanges. Both ends are nghttp2's own: a client that the test tells what to ask, a server that
 * it tells what to answer. */
#pragma once

#include "egress/http/h2_internal.h"
#include "egress/http/test_exchange.h"

enum { ENDS_STREAMS = 512 };

/* What an end knows of a stream. */
struct seen {
    struct buf head, trailers, body, informed; /* "name: value\n"; informed: 1xx */
    bool has_head, ended, closed;
    uint32_t code; /* of RST_STREAM, or of what closed it */
    /* What it is to send. */
    struct buf out;
    bool out_ends, waiting;
    const char *out_trailer; /* its value */
    bool in_informed;
};

struct half {
    nghttp2_session *session;
    struct seen streams[ENDS_STREAMS]; /* by (id - 1) / 2 */
    unsigned goaways, pings;
    uint32_t goaway_code;
    bool no_credit; /* nothing is given back to the other end's window */
    bool dead;
};

struct ends {
    struct rig r;
    struct half *half[2];
};

void ends_open(struct ends *w, const struct exchange_times *times);
void ends_open_tcp(struct ends *w);     /* as rig_open_tcp() */
struct half *ends_half(bool is_server); /* one alone: the test fills in the rest of struct ends */
void ends_close(struct ends *w);
void ends_turn(struct ends *w); /* once: what each end has to say, and to hear */

#define ENDS_UNTIL(w, condition)                                                                                       \
    do {                                                                                                               \
        uint64_t until_ = uv_hrtime() + 20ULL * 1000000000;                                                            \
        while (!(condition)) {                                                                                         \
            ends_turn(w);                                                                                              \
            if (uv_hrtime() > until_)                                                                                  \
                rig_failed(&(w)->r, __FILE__, __LINE__, #condition);                                                   \
        }                                                                                                              \
    } while (0)

struct seen *ends_at(struct ends *w, enum peer p, int32_t id);

/* More of the body that an end sends. */
void ends_give(struct ends *w, enum peer p, int32_t id, const char *text, bool ends);

/* fields: "name: value\n" lines, pseudo ones too; body: NULL for none. */
int32_t ends_ask(struct ends *w, const char *fields, const char *body, bool ends);
void ends_answer(struct ends *w, int32_t id, const char *fields, const char *body, bool ends);

void ends_expect(struct buf *b, const char *text); /* that, and empties it */

#define ENDS_ASK ":method: GET\n:scheme: https\n:authority: a\n:path: /\n"

/* One plain request goes through: the connection is as good as new. Returns upstream's id. */
int32_t ends_again(struct ends *w);

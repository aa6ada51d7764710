/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of exchanges: the exchange under test between two sockets, whose other ends the test plays by hand; an
 * owner that writes down what it is asked. Everything waits by running the loop, 20 s at most.
 */
#pragma once

#include "base/buf.h"
#include "egress/http/exchange_internal.h"

typedef struct exchange *exchange_make_fn(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                                          const struct exchange_ops *ops, void *ctx,
                                          const struct exchange_times *times);

enum peer { CLIENT, UPSTREAM };

struct rig {
    uv_loop_t loop;
    struct exchange *x; /* NULL once closed */
    int fd[2];          /* the test's ends; -1: closed */
    struct buf got[2];  /* what they received and the test did not take yet */
    bool eof[2];
    int error[2];
    bool stop[2]; /* that end does not read */

    /* The owner. */
    unsigned requests, answers, ends;
    unsigned waits; /* requests that it wanted to be asked about later: see rig_wants() */
    bool is_told;   /* what it waited for */
    int last_status;
    uint64_t last_answered;
    bool failed, end_seen;
    struct err err;
    struct buf log; /* "METHOD authority path\n" and "name: value\n" of each request, an empty line behind */
    int refuse;     /* with this status what the path "/refused" asks; 0: 403 */
    bool refuse_closes;
    bool close_in_request, close_in_answer, close_in_end; /* exchange_close() from within */
    void (*edit)(struct exchange_head *head);             /* of what is allowed */
    size_t peak;                                          /* of bytes between the ends, see rig_turn() */
};

extern const struct exchange_ops rig_ops;

void rig_open(struct rig *r, exchange_make_fn *make, const char *first, const struct exchange_times *times);
/* Over TCP on loopback, where a reset can be told from an end. without: no upstream yet. */
void rig_open_tcp(struct rig *r, exchange_make_fn *make, bool without);
/* fd: a client that somebody else plays; taken. */
void rig_open_fd(struct rig *r, exchange_make_fn *make, int fd);
struct side *rig_dial(struct rig *r); /* the upstream of `without` */
void rig_close(struct rig *r);        /* and nothing is left */

void rig_turn(struct rig *r); /* once: the loop, then what the ends can read */
#define RIG_UNTIL(r, condition)                                                                                        \
    do {                                                                                                               \
        uint64_t rig_until_ = uv_hrtime() + 20ULL * 1000000000;                                                        \
        while (!(condition)) {                                                                                         \
            rig_turn(r);                                                                                               \
            if (uv_hrtime() > rig_until_)                                                                              \
                rig_failed(r, __FILE__, __LINE__, #condition);                                                         \
        }                                                                                                              \
    } while (0)
void rig_failed(struct rig *r, const char *file, int line, const char *what);

void rig_send(struct rig *r, enum peer p, struct str s); /* all of it */
void rig_say(struct rig *r, enum peer p, const char *text);
void rig_shut(struct rig *r, enum peer p);  /* end of file */
void rig_leave(struct rig *r, enum peer p); /* closes that end */

/* The next bytes that this end gets are exactly these. */
void rig_expect(struct rig *r, enum peer p, const char *text);
/* A head that begins with `text`; taken with the body of its content-length, which is put into the log's place of
 * `ret_body` (may be NULL). */
void rig_expect_answer(struct rig *r, const char *text, struct buf *ret_body);
void rig_expect_end(struct rig *r, enum peer p, bool reset); /* and nothing before it */

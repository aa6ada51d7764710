/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests: a server on a loopback or unix socket in this very process, and raw clients which turn its loop while
 * they wait.
 */
#pragma once

#include "base/buf.h"
#include "http/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct test_server {
    uv_loop_t loop;
    struct http_server *server;
    char unix_path[64]; /* "" for TCP */
    int port;
    unsigned requests, closes; /* what the handler below counts */
    uint64_t body_bytes;
    int body_error;
    struct http_request *held; /* by /hold */
};

/*
 * limits may be NULL. The handler knows
 *   /hello           "hello <method>"           /headers   what it was sent, one per line
 *   /echo            the body, read whole (4 KiB at most)
 *   /stream          the body, piece by piece, chunked
 *   /count           reads the body, answers its length
 *   /later           answers from a timer       /hold      answers never; see `held`
 *   /big?n=          n bytes of content-length  /chunked?n= n bytes, chunked     /endless  chunked without an end
 *   /cut             two chunks, then aborts    /short     less than its content-length
 *   /up              101, then echoes raw bytes
 *   /up-and-away     101, and the end of this side
 */
void test_server_open(struct test_server *t, const struct http_limits *limits, bool is_unix);
/* With another handler; ctx is t. */
void test_server_open_with(struct test_server *t, const struct http_limits *limits, bool is_unix, http_request_fn fn);
/* Over TCP with TLS, which is borrowed. */
void test_server_open_tls(struct test_server *t, const struct http_limits *limits, const struct http_tls *tls);
/* and checks that every request had one on_close, and the loop has nothing left */
void test_server_close(struct test_server *t);

int test_connect(struct test_server *t); /* non-blocking */
void test_turn(struct test_server *t);   /* the loop, until it has nothing to do for a moment */
void test_send(struct test_server *t, int fd, struct str bytes);

/*
 * Turns the loop until the client has received `until` (p NULL: the end of the connection). Fails the test after 20 s
 * without a byte.
 */
void test_receive(struct test_server *t, int fd, struct buf *b, struct str until);
bool test_is_closed(struct test_server *t, int fd); /* end of file or reset, with nothing to read before */

/*
 * One connection: sends all, receives until the end of the connection; dates and their lines are cut out. Half-closes
 * if asked to.
 */
void test_exchange(struct test_server *t, struct str bytes, bool half_close, struct buf *ret);
void test_strip_dates(struct buf *b);

#define assert_str(s, literal)                                                                                         \
    do {                                                                                                               \
        struct str assert_str_ = (s);                                                                                  \
        if (!str_eqc(assert_str_, (literal)))                                                                          \
            fail_msg("got \"%.*s\"\nnot \"%s\"", STR_ARG(assert_str_), (literal));                                     \
    } while (0)
#define assert_has(s, literal)                                                                                         \
    do {                                                                                                               \
        struct str assert_has_ = (s);                                                                                  \
        if (!memmem(assert_has_.p, assert_has_.n, (literal), strlen(literal)))                                         \
            fail_msg("no \"%s\" in \"%.*s\"", (literal), STR_ARG(assert_has_));                                        \
    } while (0)

/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: the façade behind a real HTTP server, over a real core with fake agents, and raw clients which turn its loop while they wait. */
#pragma once

#include "api/e2b/e2b.h"
#include "http/server.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define TEST_KEY "e2b_0123456789abcdef"

struct test_facade {
    struct world *w;
    struct e2b *e2b;
    struct http_server *server;
    int port;
    unsigned unclaimed; /* requests that no route took */
};

int facade_setup(void **state); /* for cmocka; *state is a struct test_facade */
int facade_teardown(void **state);

struct sandbox *facade_sandbox(struct test_facade *f, bool secure);
const char *facade_headers(const struct sandbox *sb,
                           unsigned port); /* routing and token, each line ended; until the next call */

int facade_connect(struct test_facade *f); /* non-blocking */
void facade_send(struct test_facade *f, int fd, struct str bytes);
/* Turns the loop until the answer holds `until`, or its connection ended (NULL). Returns false at an end that was not asked for. */
bool facade_receive(struct test_facade *f, int fd, struct buf *b, const char *until);

/*
 * One request with `headers` (lines) and a body, one answer. *ret_body is cleared and gets the body, chunks joined. Returns the status;
 * 0 when the connection was cut before the answer was complete. head (may be NULL) gets the head.
 */
int facade_call(struct test_facade *f, const char *method, const char *target, const char *headers, struct str body,
                struct buf *ret_head, struct buf *ret_body);
int facade_json(struct test_facade *f, const char *method, const char *target, const char *body,
                struct buf *ret_body); /* with the key */

/* A Connect stream with this one message. */
int facade_stream(struct test_facade *f, struct sandbox *sb, const char *method, const char *message,
                  struct buf *ret_body);
void facade_envelope(struct buf *b, struct str message);
/* The messages of a stream's body, each on a line, flags in front: "0 {...}\n2 {}\n". */
void facade_messages(struct buf *body, struct buf *ret_lines);

#define assert_has(b, text)                                                                                            \
    do {                                                                                                               \
        struct str has_ = buf_str(b);                                                                                  \
        if (!memmem(has_.p ? has_.p : "", has_.n, (text), strlen(text)))                                               \
            fail_msg("no %s in %.*s", (text), STR_ARG(has_));                                                          \
    } while (0)
#define assert_is(b, text)                                                                                             \
    do {                                                                                                               \
        struct str is_ = buf_str(b);                                                                                   \
        if (!str_eqc(is_, (text)))                                                                                     \
            fail_msg("got %.*s\nnot %s", STR_ARG(is_), (text));                                                        \
    } while (0)

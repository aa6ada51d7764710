/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: façades behind a real HTTP server, over a real core with fake agents, and raw clients which turn its loop
 * while they wait. */
#pragma once

#include "api/kit/facade.h"
#include "http/server.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct test_facade {
    struct world *w;
    struct http_server *server;
    struct claim claims[8];
    size_t n_claims;
    int port;
    unsigned unclaimed; /* requests that nobody took */
};

/* A server without façades; the first one that claims is freed at the end. */
struct test_facade *facade_open(void);
void facade_claim(struct test_facade *f, const struct claim *claim);
int facade_close(struct test_facade *f, void (*free_facade)(void *facade));

struct sandbox *facade_sandbox(struct test_facade *f, bool secure);

int facade_connect(struct test_facade *f); /* non-blocking */
void facade_send(struct test_facade *f, int fd, struct str bytes);
/* Turns the loop until the answer holds `until`, or its connection ended (NULL). Returns false at an end that was not
 * asked for. */
bool facade_receive(struct test_facade *f, int fd, struct buf *b, const char *until);

/*
 * One request with `headers` (lines) and a body, one answer. *ret_body is cleared and gets the body, chunks joined.
 * Returns the status; 0 when the connection was cut before the answer was complete. head (may be NULL) gets the head.
 */
int facade_call(struct test_facade *f, const char *method, const char *target, const char *headers, struct str body,
                struct buf *ret_head, struct buf *ret_body);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of TLS sides share. */
#pragma once

#include "egress/tls/side_tls.h"
#include "egress/tls/test_tls.h"

enum { TIMEOUT_MS = 15000 };
#define NAME "api.example.com"

/* A client side and a server side, both ours, over loopback TCP. */
struct both {
    struct test_tls tls;
    struct test_owner client, server;
};

struct both_amount {
    struct test_owner *owner;
    size_t n;
};

const struct ca_leaf *both_leaf(struct test_tls *t, const char *name);
void both_start(struct both *b, const struct ca_leaf *leaf, const char *name, struct str alpn, struct str chosen);
bool both_are_ready(void *ctx); /* struct both */
void both_open(struct both *b);
void both_fini(struct both *b);
void both_close(struct both *b);
bool both_has_amount(void *ctx); /* struct both_amount */
void both_expect(struct test_rig *r, struct test_owner *o, const char *text);

/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: this façade behind a real server (api/kit/test_facade.h). */
#pragma once

#include "api/e2b/e2b.h"
#include "api/kit/test_facade.h"

#define TEST_KEY "e2b_0123456789abcdef"

int facade_setup(void **state); /* for cmocka; *state is a struct test_facade */
int facade_teardown(void **state);

/* Routing and token, each line ended; until the next call. */
const char *facade_headers(const struct sandbox *sb, unsigned port);

int facade_json(struct test_facade *f, const char *method, const char *target, const char *body,
                struct buf *ret_body); /* with the key */

/* A Connect stream with this one message. */
int facade_stream(struct test_facade *f, struct sandbox *sb, const char *method, const char *message,
                  struct buf *ret_body);
void facade_envelope(struct buf *b, struct str message);
/* The messages of a stream's body, each on a line, flags in front: "0 {...}\n2 {}\n". */
void facade_messages(struct buf *body, struct buf *ret_lines);

/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of sides: a loop that is run until something is so, sockets to be their peers, an owner that writes down
 * what it is told. */
#pragma once

#include "base/buf.h"
#include "egress/flow/side.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Sides are made on `loop`; close_all leaves nothing, and says what was forgotten: descriptors, handles. */
struct test_rig {
    uv_loop_t loop;
    uv_timer_t guard;
    int fds; /* open before */
};

void test_rig_open(struct test_rig *r);
void test_rig_close(struct test_rig *r);

/* Runs the loop until it is so; fails the test after 20 s. */
void test_until(struct test_rig *r, bool (*is_so)(void *ctx), void *ctx);
void test_until_true(struct test_rig *r, const bool *flag);
void test_until_alone(struct test_rig *r); /* until nothing is left on the loop */
void test_turn(struct test_rig *r);        /* what is due now, without waiting: a few turns of the loop */

/* Both non-blocking. */
void test_tcp_pair(int ret_fds[static 2]);
int test_listen(int backlog, struct sockaddr_storage *ret_addr);
int test_accept(int listener); /* non-blocking */

size_t test_heap_bytes(void);

/* The owner. It reads all it can when told to, unless it is paused. */
struct test_owner {
    struct side *side;
    struct buf got;
    unsigned readable, writable;
    bool paused, close_when_told; /* closes the side in whatever callback comes */
    bool is_ready, is_writable, is_ended, is_failed;
    struct err err;
    int read_error; /* of side_read(), other than -EAGAIN */
};

void test_owner_open(struct test_owner *o, struct side *s);
void test_owner_read(struct test_owner *o);
void test_owner_fini(struct test_owner *o); /* closes the side, if it is still there */
extern const struct side_ops test_owner_ops;

/* The other ends: plain sockets that the test serves by hand. */
void test_peer_send(int fd, const void *p, size_t n);
void test_peer_expect(struct test_rig *r, int fd, struct str what);
ssize_t test_peer_wait(struct test_rig *r, int fd, void *to, size_t room); /* runs the loop meanwhile; -errno */

/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: one connection of a sandbox in a whole egress, whose other ends the test holds: the client, the server,
 * cove-api and coved. */
#pragma once

#include "egress/flow/flow.h"
#include "egress/flow/test_side.h"

enum { TEST_FLOW_STILL_MS = 1500, TEST_FLOW_MESSAGE_MAX = 4096 };

#define TEST_FLOW_ID "i0123456789abcdefghij"

struct test_flow {
    struct test_rig rig;
    struct egress *egress;
    struct net *net;
    struct flow *flow;
    int control, api, client, server, listener;
    struct sockaddr_storage addr;
    struct netaddr to;
    uint16_t port;
    char told[TEST_FLOW_MESSAGE_MAX];
};

void test_flow_open_to(struct test_flow *w); /* with a connection to our server, of which nothing was read yet */
void test_flow_open(struct test_flow *w);    /* and our server has accepted it */
void test_flow_close(struct test_flow *w);
void test_flow_next(
    struct test_flow *w); /* once the connection has ended: another one, of which nothing was read yet */

const char *test_flow_told(struct test_flow *w); /* the next message to cove-api, or "" when there is none yet */
void test_flow_expect_told(struct test_flow *w, const char *op, const char *what);
bool test_flow_is_gone(void *w);

void test_flow_allow(struct test_flow *w, const char *text);          /* a policy in which ' stands for " */
void test_flow_hello(int fd, const char *name);                       /* a ClientHello as short as one can be */
void test_flow_hello_with(int fd, const char *name, struct str more); /* and with more extensions; name: or NULL */

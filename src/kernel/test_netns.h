/* SPDX-License-Identifier: Apache-2.0 */
/* A captured network for tests. The program moves into its namespace: it is the sandbox, and has the sockets of the
 * other side, too. */
#pragma once

#include "kernel/netns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

enum { WAIT_MS = 5000 };

extern struct netns net;

struct address {
    struct sockaddr_storage at;
    socklen_t n;
};

struct address address(const char *text, uint16_t port);
const struct sockaddr *sa(const struct address *a);
int open_for(const struct address *a, int type);
void await(int fd, short events);
int bind_to(int fd, const char *text, uint16_t port);
/* What became of a connect(), as an errno. */
int outcome(int fd, const struct address *to);
int accept_one(int listener);
bool is_quiet(int fd);
void expect_text(int fd, const char *text);
/* to: what the client connects to; original: what the other side learns of it. */
void capture(int listener, const char *from, const char *to, const char *original, uint16_t port);
void test_tcp_of_port_53_is_dns(void **state);
void test_fast_open_is_captured(void **state);
/* Two destinations, one port of the client's, our end of the first connection in TIME-WAIT: no packet of the second may
 * be sent twice. */
void test_a_port_is_used_again(void **state);
void test_dns_is_captured(void **state);
/* One socket asks two servers: each answer must come from the one that was asked. */
void test_dns_from_one_port(void **state);
unsigned long tracked(void);
void test_everybody_may_bind_every_port(void **state);
int run(int (*make)(struct netns *), const char *name, const struct CMUnitTest *tests, size_t n);

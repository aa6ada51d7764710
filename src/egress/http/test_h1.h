/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of HTTP/1 share. */
#pragma once

#include "egress/http/test_exchange.h"

#define GET "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_OUT "GET / HTTP/1.1\r\nhost: a\r\n\r\n"
#define OK2 "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

void h1_open(struct rig *r);
void h1_again(struct rig *r); /* one plain request is answered: the connection is as good as new */
void h1_expect_log(struct rig *r, const char *text);
void h1_ended_well(struct rig *r); /* waits for the end, and closes */
void h1_ended_badly(struct rig *r);

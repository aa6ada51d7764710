/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who was turned away for want of a key or a token stands in the service's log as `service.denied`: from where, by
 * which API, and why, never what was sent.
 *
 * Strangers cause it without end, so it is thinned until nobody can push the rest out of that log:
 *  1. The first of an address (of IPv6, its /64), API and reason is told at once. What follows is counted, and told by
 *     the timer after a minute, then after two, up to an hour, for as long as it goes on.
 *  2. All together have a stock of 60 events that grows by one in five minutes. Without stock nothing is told, and
 *     counted all the same.
 *  3. 256 are told apart. Others are counted as one, whose address is "others".
 */
#pragma once

#include "base/clock.h"
#include "http/request.h"

#include <uv.h>

/* A token is a sandbox's or a volume's; a signature made with another one is a wrong one. */
enum refusal { REFUSAL_NO_KEY, REFUSAL_WRONG_KEY, REFUSAL_WRONG_USER, REFUSAL_NO_TOKEN, REFUSAL_WRONG_TOKEN };

/* count: how many alike since the last time. The strings are valid during the call. */
typedef void (*refusals_fn)(void *ctx, const char *api, enum refusal why, const char *from, uint64_t count);

struct refusals;

struct refusals *refusals_new(uv_loop_t *loop, refusals_fn tell, void *ctx);
void refusals_free(
    struct refusals *r); /* what was not told is, as one; its handle is closed in a later turn. NULL is fine */

/* api: a literal ("native"). r: NULL is fine. */
void refusals_note(struct refusals *r, const char *api, enum refusal why, const struct http_peer *peer);

/* The parts, for the timer and for tests: the time is given. */
void refusals_note_at(struct refusals *r, const char *api, enum refusal why, const char *from, usec_t now);
void refusals_tick(struct refusals *r, usec_t now);

/* "203.0.113.7", "2001:db8:1:2::/64", "uid=1000". */
enum { REFUSALS_FROM_MAX = 64 };
void refusals_from(const struct http_peer *peer, char ret_from[static REFUSALS_FROM_MAX]);

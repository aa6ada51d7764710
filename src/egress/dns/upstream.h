/* SPDX-License-Identifier: Apache-2.0 */
/* The DNS servers of the host, asked by c-ares on a libuv loop. Internal to resolver.c, which bounds how much is
 * asked. */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <uv.h>

struct upstream;

/* servers: as in resolver_new(). */
int upstream_new(uv_loop_t *loop, const char *servers, struct upstream **ret_upstream, struct err *err) WARN_UNUSED;

/* Open questions end with -ECANCELED. The loop must run once more to free the handles. */
void upstream_free(struct upstream *u);

/*
 * 0 and a message that was not looked into yet; -ENOENT: NXDOMAIN; -ENODATA; -ETIMEDOUT; -ECONNREFUSED: no server
 * there, or they fail; -EPROTO. Called once, maybe from within upstream_ask(). May not call upstream_ask(), which may
 * put away the channel that calls.
 */
typedef void (*upstream_fn)(void *ctx, int status, struct str message);
void upstream_ask(struct upstream *u, const char *name, uint16_t type, upstream_fn fn, void *ctx);

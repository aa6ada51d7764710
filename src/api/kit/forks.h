/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a sandbox, for a call that waits for all of them: what came of each as JSON, in the order of their numbers.
 *
 *     struct forks *f = forks_new(c, count, one, answer);
 *     forks_begun(f, sandbox_fork(c->sandbox, &c->actor, false, count, timeout_ms, forks_on, f, &c->err));
 */
#pragma once

#include "api/kit/call.h"

struct forks;

/* one: fork NULL, and err says why. answer takes the list. Neither comes when the client has left: c->state is gone. */
struct forks *forks_new(struct call *c, size_t count,
                        json_t *(*one)(struct call *c, const struct sandbox *fork, const struct err *err),
                        void (*answer)(struct call *c, json_t *all));
void forks_begun(struct forks *f, int r); /* r < 0: c->err is answered, and nothing follows */
void forks_on(void *forks, size_t i, struct sandbox *fork, const struct err *err); /* fork_fn */

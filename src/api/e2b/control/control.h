/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane: its handlers, one for each route of control.c's table. */
#pragma once

#include "api/e2b/call.h"

extern const struct route control_routes[];
extern const size_t control_routes_n;

/* Answers when a route matches; false, with nothing done, when none does. */
bool control_handle(struct e2b *e2b, struct http_request *req);

/* The sandbox that args[0] names, running or paused; NULL when there is none, and then the call was answered (400 or 404). */
struct sandbox *control_sandbox(struct call *c);

/* The façade's own decisions (api/kit/facade.h). */
bool control_authenticate(struct call *c);
bool control_preflight(struct facade *f, struct http_request *req);
int control_status_of(const struct call *c, struct err *err);

/* Is there a route of the control plane for it, one that wants the key? */
bool control_has_route(const struct http_request *req);

/* For what answers nothing but that it was done: 204. */
void control_on_done(void *ctx, struct sandbox *sb, const struct err *err);

bool control_set_timeout(struct call *c, struct sandbox *sb, int64_t seconds, bool extend_only); /* false: answered */

void control_create(struct call *c);          /* v1: short default timeout, a token only when asked for */
void control_creations_free(struct e2b *e2b); /* what is remembered of them */
void control_list(struct call *c);            /* v1: running ones, no pages */
void control_list_v2(struct call *c);
void control_get(struct call *c);
void control_kill(struct call *c);
void control_connect(struct call *c);
void control_connect_v2(struct call *c);
void control_resume(struct call *c);
void control_pause(struct call *c);
void control_snapshot(struct call *c);
void control_snapshots(struct call *c);
void control_fork(struct call *c);
void control_timeout(struct call *c);
void control_refresh(struct call *c);
void control_network(struct call *c); /* replaces all that goes out */
void control_metrics(struct call *c);
void control_metrics_many(struct call *c);
void control_logs(struct call *c);
void control_logs_v2(struct call *c);
void control_volume_make(struct call *c);
void control_volumes(struct call *c);
void control_volume(struct call *c);
void control_volume_drop(struct call *c);

/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane: its handlers, one for each route of control.c's table. */
#pragma once

#include "api/e2b/call.h"

extern const struct route control_routes[];
extern const size_t control_routes_n;

/* Answers when a route matches; false, with nothing done, when none does. */
bool control_handle(struct e2b *e2b, struct http_request *req);

/* The sandbox that args[0] names, running or paused; NULL when there is none, and then the call was answered (400 or
 * 404). */
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
route_handler control_list_v2, control_get, control_kill, control_connect, control_connect_v2, control_resume,
    control_pause, control_snapshot, control_snapshots, control_fork, control_timeout, control_refresh;
void control_network(struct call *c); /* replaces all that goes out */
route_handler control_metrics, control_metrics_many, control_logs, control_logs_v2, control_volume_make,
    control_volumes, control_volume, control_volume_drop;

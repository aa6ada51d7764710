/* SPDX-License-Identifier: Apache-2.0 */
/* What the handlers of the native API share. Private to src/api/native. */
#pragma once

#include "api/kit/call.h"
#include "api/native/native.h"
#include "sandbox/life/layers.h"

extern const struct route native_routes[];
extern const size_t native_routes_n;

/* What was last heard of the storage pool (ready.c). */
struct native_pool {
    usec_t looked; /* monotonic; 0: never */
    bool failed, has_base, has_room;
    struct pool_figures figures;     /* unless failed */
    struct ready_question *question; /* under way; NULL: none */
    uv_timer_t *timer;               /* freed when it is closed */
    struct list waiting;             /* struct call, by its node */
};

struct ready_question {
    struct native *native; /* NULL: gone meanwhile */
};

struct native {
    struct facade facade;
    struct native_pool pool;
    struct native_config config; /* version is owned */
    size_t n_followers;          /* streams of events */
};

static inline struct native *native_of(const struct call *c)
{
    return container_of(c->facade, struct native, facade);
}

void native_error_json(struct buf *b, const struct err *err); /* {"error":{...}} */

/* json_put_time(), and null for time 0. */
void native_append_time(struct buf *b, const char *name, usec_t at);

/* So much is queued for the client that its handler waits for http_on_drain(). */
static inline bool call_is_full(const struct call *c)
{
    return http_response_full(c->req);
}

/* The answer is lines of JSON, unless that was said before. */
void native_begin_lines(struct call *c);

/* A sandbox as the API shows it. */
void native_append_sandbox(struct buf *b, const struct sandbox *sb);

/* A sandbox_fn for a call_hold(): the answer is the sandbox. */
void native_on_sandbox(void *ctx, struct sandbox *sb, const struct err *err);

/* Handlers, by file. */
void native_ready_init(struct native *n, uv_loop_t *loop);
void native_ready_fini(struct native *n);
void native_ready(struct call *c);
/* answer comes once native->pool is fresh, or coved has been silent for too long. asker: static. */
struct native_asker {
    void (*answer)(struct call *c);
};
void native_look_at_pool(struct call *c, const struct native_asker *asker);
void native_metrics(struct call *c);
void native_sandboxes_list(struct call *c);
void native_sandboxes_create(struct call *c);
void native_sandboxes_get(struct call *c);
void native_sandboxes_kill(struct call *c);
void native_sandboxes_timeout(struct call *c);
void native_sandboxes_metrics(struct call *c);
void native_sandboxes_violation(struct call *c);
void native_sandboxes_received(struct call *c);
void native_state_pause(struct call *c);
void native_state_resume(struct call *c);
void native_state_snapshot(struct call *c);
void native_state_snapshots(struct call *c);
void native_state_snapshot_remove(struct call *c);
void native_state_fork(struct call *c);
void native_state_checkpoints(struct call *c);
void native_state_rewind(struct call *c);
void native_volumes_list(struct call *c);
void native_volumes_create(struct call *c);
void native_volumes_remove(struct call *c);
void native_volumes_usage(struct call *c);
void native_diff(struct call *c);
void native_pool_get(struct call *c);
void native_pool_collect(struct call *c);
void native_pool_warm(struct call *c);
void native_network_get(struct call *c);
void native_network_set(struct call *c);
void native_network_check(struct call *c);
void native_events_stream(struct call *c);
void native_events_feed(struct call *c);
void native_events_logs(struct call *c);
void native_events_verify(struct call *c);
void native_events_evidence(struct call *c);
void native_output_get(struct call *c);
void native_output_artefact(struct call *c);
void native_exec(struct call *c);
void native_attach(struct call *c);
void native_exec_processes(struct call *c);
void native_files_get(struct call *c);
void native_files_head(struct call *c);
void native_files_put(struct call *c);
void native_files_pack(struct call *c);
void native_files_unpack(struct call *c);
void native_files_delete(struct call *c);
void native_files_entries(struct call *c);
void native_templates_list(struct call *c);
void native_templates_change(struct call *c);
void native_templates_remove(struct call *c);
void native_builds_make(struct call *c);
void native_builds_get(struct call *c);
void native_builds_log(struct call *c);
void native_builds_cancel(struct call *c);
void native_guard_get(struct call *c);
void native_guard_set(struct call *c);
void native_guard_rails(struct call *c);
void native_guard_test(struct call *c);
void native_export_get(struct call *c);
void native_export_set(struct call *c);
void native_approvals_list(struct call *c);
void native_approvals_answer(struct call *c);
void native_keys_list(struct call *c);
void native_keys_create(struct call *c);
void native_keys_rotate(struct call *c);
void native_keys_revoke(struct call *c);
void native_tenants_list(struct call *c);
void native_tenants_create(struct call *c);
void native_tenants_get(struct call *c);
void native_tenants_set(struct call *c);
void native_tenants_remove(struct call *c);
void native_uploads_get(struct call *c);
void native_uploads_put(struct call *c);

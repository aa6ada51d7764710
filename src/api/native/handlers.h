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
    struct list feeds;           /* of these, calls that are told of everybody's */
    struct list verifying;       /* calls */
};

static inline struct native *native_of(const struct call *c)
{
    return container_of(c->facade, struct native, facade);
}

json_t *native_error(const struct err *err, const char *hint); /* {"error":{...}}; hint NULL: the usual one, if any */

/* The answer is lines of JSON, unless that was said before. */
void native_begin_lines(struct call *c);

json_t *native_sandbox_json(const struct sandbox *sb); /* as the API shows it */

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
route_handler native_sandboxes_create, native_diff, native_output_get, native_output_artefact;
route_handler native_metrics, native_export_get, native_export_set;
route_handler native_sandboxes_list, native_sandboxes_get, native_sandboxes_kill, native_sandboxes_timeout,
    native_sandboxes_metrics, native_sandboxes_violation, native_sandboxes_received;
route_handler native_state_pause, native_state_resume, native_state_snapshot, native_state_snapshots,
    native_state_snapshot_remove, native_state_fork, native_state_checkpoints, native_state_rewind;
route_handler native_services_add, native_services_list;
route_handler native_volumes_list, native_volumes_create, native_volumes_remove, native_volumes_usage;
route_handler native_pool_get, native_pool_collect, native_pool_warm, native_pool_warm_list;
route_handler native_network_get, native_network_set, native_network_check;
route_handler native_events_stream, native_events_feed, native_events_logs, native_events_verify,
    native_events_evidence;
route_handler native_exec, native_attach, native_exec_processes;
route_handler native_files_get, native_files_head, native_files_put, native_files_pack, native_files_unpack,
    native_files_delete, native_files_entries;
route_handler native_templates_list, native_templates_change, native_templates_remove, native_builds_make,
    native_builds_get, native_builds_log, native_builds_cancel, native_uploads_get, native_uploads_put;
route_handler native_guard_get, native_guard_set, native_guard_rails, native_guard_test, native_approvals_list,
    native_approvals_answer;
route_handler native_keys_list, native_keys_create, native_keys_rotate, native_keys_revoke;
route_handler native_tenants_list, native_tenants_create, native_tenants_get, native_tenants_set, native_tenants_remove;

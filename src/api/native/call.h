/* SPDX-License-Identifier: Apache-2.0 */
/* One request of the native API, as its handlers see it. Private to src/api/native. */
#pragma once

#include "api/key_name.h"
#include "api/native/native.h"
#include "api/slices.h"
#include "base/buf.h"
#include "base/err.h"
#include "sandbox/sandbox.h"

#include <jansson.h>

/* What was last heard of the storage pool (ready.c). */
struct native_pool {
    usec_t looked; /* monotonic; 0: never */
    bool failed, has_base, has_room;
    struct ready_question *question; /* under way; NULL: none */
    uv_timer_t *timer;               /* freed when it is closed */
    struct list waiting;             /* struct ready_wait */
};

struct ready_question {
    struct native *native; /* NULL: gone meanwhile */
};

struct native {
    struct native_pool pool;
    struct native_config config;  /* key and version are owned */
    struct slices slices;         /* walks through logs */
    char key_actor[KEY_NAME_MAX]; /* who comes with the key */
};

/* Lives in the request's arena. */
struct call {
    struct native *native;
    struct http_request *req;
    struct actor actor;
    struct str id;   /* {id} of the route, terminated; empty when it has none */
    bool of_service; /* of no sandbox: id is that of the service's log */
    void (*closed)(
        struct call *c); /* the client left or has its answer: lets go of what is pending; NULL: nothing is */
    void *op;            /* the handler's */
    struct list node;    /* the same */
};

typedef void (*call_fn)(struct call *c);

void native_json(struct call *c, int status, struct buf *body); /* 500 when the buf has an error */
void native_empty(struct call *c, int status);
void native_error(struct call *c, const struct err *err);
void native_error_hint(struct call *c, const struct err *err, const char *hint); /* NULL: the code's, if it has one */
void native_refuse(struct call *c, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void native_error_json(struct buf *b, const struct err *err); /* {"error":{...}} */

/* A further member of an object: ,"name":"text", or null for NULL and for time 0. */
void native_append_text(struct buf *b, const char *name, const char *text);
void native_append_time(struct buf *b, const char *name, usec_t at);

/* So much is queued for the client that its handler waits for http_on_drain(). */
bool native_is_full(const struct call *c);

/* The sandbox of the route, alive or just ended; NULL: 404 was answered. */
struct sandbox *native_sandbox(struct call *c);

/* The query parameter decoded. False: absent (*ret_value is untouched), or malformed, which counts as absent for optional ones. */
bool native_query(struct call *c, const char *name, struct str *ret_value);
/* A number in the query, 0 when absent; -1: 400 was answered. */
int native_query_u64(struct call *c, const char *name, uint64_t *value);
/* true, false, 1, 0, or the bare name, which is true; false when absent. -1: 400 was answered. */
int native_query_bool(struct call *c, const char *name, bool *value);

/*
 * For operations of the core that can't be cancelled: what their callback gets. The call is NULL once it has closed. native_wait_new() sets
 * c->closed; native_wait_take() frees the wait and returns the call or NULL.
 */
struct wait {
    struct call *call;
};
struct wait *native_wait_new(struct call *c);
struct call *native_wait_take(struct wait *w);

enum { NATIVE_BODY_MAX = 1 << 20 };
/* False: the body could not be read, and what has to be answered was. */
bool native_read_object(struct call *c, int error, struct str body, json_t **ret_json);

/* A sandbox as the API shows it. */
void native_append_sandbox(struct buf *b, const struct sandbox *sb);
void native_answer_sandbox(struct call *c, int status, const struct sandbox *sb);

/* The end of a wait for what becomes of a sandbox: the answer, unless the client has left. err: what failed, or NULL. */
void native_answer_wait(struct wait *w, int status, const struct sandbox *sb, const struct err *err);

/* Handlers, by file. */
void native_ready_init(struct native *n);
void native_ready_fini(struct native *n);
void native_ready(struct call *c);
void native_sandboxes_list(struct call *c);
void native_sandboxes_create(struct call *c);
void native_sandboxes_get(struct call *c);
void native_sandboxes_kill(struct call *c);
void native_sandboxes_timeout(struct call *c);
void native_sandboxes_metrics(struct call *c);
void native_state_pause(struct call *c);
void native_state_resume(struct call *c);
void native_state_snapshot(struct call *c);
void native_state_snapshots(struct call *c);
void native_state_snapshot_remove(struct call *c);
void native_state_fork(struct call *c);
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
void native_events_logs(struct call *c);
void native_events_verify(struct call *c);
void native_output_get(struct call *c);
void native_events_service(struct call *c);
void native_events_service_verify(struct call *c);
void native_exec(struct call *c);
void native_exec_processes(struct call *c);
void native_files_get(struct call *c);
void native_files_head(struct call *c);
void native_files_put(struct call *c);
void native_files_delete(struct call *c);
void native_files_entries(struct call *c);
void native_templates_list(struct call *c);
void native_templates_change(struct call *c);
void native_templates_remove(struct call *c);
void native_builds_make(struct call *c);
void native_builds_get(struct call *c);
void native_builds_log(struct call *c);
void native_builds_cancel(struct call *c);
void native_uploads_get(struct call *c);
void native_uploads_put(struct call *c);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native API under NATIVE_PREFIX, for the command line and the console: plain JSON over HTTP, streams where things
 * stream.
 *
 *   GET    /cove/v1/health                       no authorisation
 *   GET    /cove/v1/ready                        no authorisation: can sandboxes be made now? 503 {"status":"not ready","reasons":[{code,message}]}
 *   GET    /metrics                              for Prometheus: OpenMetrics, or the text format before it; keys of the default tenant
 *   GET    /cove/v1/info                         version, limits, counts
 *   GET    /cove/v1/sandboxes?limit=&after=      {"sandboxes":[...],"next":"..."|null}, newest first
 *   POST   /cove/v1/sandboxes                    {template, memory_bytes, cpu_milli, disk_bytes, timeout_ms, env, metadata, internet, secure,
 *                                           volumes: [{name, path, read_only}], on_timeout: kill|pause, pause_memory,
 *                                           auto_resume, memory}: 201
 *   GET    /cove/v1/sandboxes/{id}
 *   DELETE /cove/v1/sandboxes/{id}
 *   POST   /cove/v1/sandboxes/{id}/timeout       {timeout_ms, extend_only}
 *   GET    /cove/v1/sandboxes/{id}/metrics
 *   POST   /cove/v1/sandboxes/{id}/pause         {memory, to: memory|disk}
 *   POST   /cove/v1/sandboxes/{id}/resume        {timeout_ms, cold}
 *   POST   /cove/v1/sandboxes/{id}/snapshots     {name, memory}: 201
 *   POST   /cove/v1/sandboxes/{id}/fork          {count, timeout_ms, memory, at}: 201 {"forks":[{"sandbox":{}}|{"error":{}}]}
 *   GET    /cove/v1/snapshots?sandbox=           {"snapshots":[...]}, newest first
 *   DELETE /cove/v1/snapshots?ref=               by id or name
 *   GET    /cove/v1/volumes[?usage=true]         {"volumes":[...]}, by name; in_pool false: its files are not in the pool that there is now. usage: with used_bytes,
 *                                           null where it is not known
 *   POST   /cove/v1/volumes                      {name, limit_bytes}: 201
 *   DELETE /cove/v1/volumes/{id or name}
 *   GET    /cove/v1/volumes/{id or name}/usage   {"used_bytes":n}
 *   GET    /cove/v1/diff?a=&b=                   what b has that a has not, as NDJSON; a empty: what b stands on
 *   GET    /cove/v1/templates?ref=               {"templates":[...]}: all, or the one of that id or name
 *   PATCH  /cove/v1/templates?ref=               {public, add_tags, remove_tags}
 *   DELETE /cove/v1/templates?ref=
 *   POST   /cove/v1/builds                       {name, tags, cpu_milli, memory_bytes, spec (build/spec.h)}: 202
 *   GET    /cove/v1/builds/{id}                  status, and why it failed
 *   GET    /cove/v1/builds/{id}/log?after=       the same and lines behind that one: {"build":{},"lines":[...]}
 *   DELETE /cove/v1/builds/{id}                  cancels it
 *   GET, PUT /cove/v1/uploads/{hash}             files for COPY (tar, gzip or not), archives of images
 *   GET    /cove/v1/pool                         kind, sizes
 *   POST   /cove/v1/pool/collect                 {dry_run, cache}: {"layers":[{layer, bytes, dropped}]}
 *   GET    /cove/v1/keys                         {"keys":[{id, name, tenant, scope, sandbox, created_at, expires_at, old_until}]}
 *   POST   /cove/v1/keys                         {name, scope: read|use|approve|admin, sandbox, expires_ms}: 201, the same with "key", which is told this once
 *   POST   /cove/v1/keys/{id or name}/rotate     {grace_ms}: 200, likewise
 *   DELETE /cove/v1/keys/{id or name}
 *   GET    /cove/v1/tenants                      {"tenants":[{name, created_at, limits: {}, used: {}, keys}]}
 *   POST   /cove/v1/tenants                      {name, and limits: sandboxes, memory_bytes, ... (sandbox/quota.h); 0: none}: 201
 *   GET, PATCH, DELETE /cove/v1/tenants/{name}   PATCH: limits
 *   GET, PUT, DELETE /cove/v1/guard, .../guard/tenant, .../guard/templates/{id or name}, .../sandboxes/{id}/guard    rules (guard/rules.h); {}: none
 *   GET    /cove/v1/guard/rails                  {"rails":[{name, risk, about, rules}]}
 *   POST   /cove/v1/guard/test, .../sandboxes/{id}/guard/test   {argv} or {kind, data}: {verdict, rule, risk, reason, analysed}
 *   GET    /cove/v1/approvals                    {"approvals":[{id, on, kind, actor, rule, risk, reason, waits_for, asked_at, until, action}]}
 *   POST   /cove/v1/approvals/{id}               {allow, always}: 204
 *   GET    /cove/v1/warm                         {"warm":[{template, template_id, count, ready}]}
 *   POST   /cove/v1/warm                         {template, count}
 *   GET    /cove/v1/sandboxes/{id}/logs?from=&follow=  lines for people, as NDJSON; each tells its seq
 *   GET    /cove/v1/sandboxes/{id}/events?from=&follow=   NDJSON, SSE when asked for by Accept, or a WebSocket; Last-Event-ID goes on behind it
 *   GET    /cove/v1/sandboxes/{id}/verify        checks the hash chain
 *   GET    /cove/v1/sandboxes/{id}/output?seq=&channel=   bytes: what was kept of a long output of that action; X-Cove-Dropped: how many came after them
 *   GET    /cove/v1/sandboxes/{id}/artefacts/{sha256}     the same by the digest that an event of the sandbox names
 *   GET    /cove/v1/sandboxes/{id}/evidence      what its log says, signed (event/evidence.h); /cove/v1/service/evidence of the service
 *   GET    /cove/v1/evidence/key, /heads?day=    the key it is signed with; the heads of all logs, signed now or on that day
 *   GET    /cove/v1/service/events, /cove/v1/service/verify    the same of the service itself
 *   GET    /cove/v1/events?from=&last=&follow=&kind=&hidden=   all of them in the order of their commits, by cursor (event/feed.h)
 *   GET, PUT /cove/v1/sandboxes/{id}/network     the policy (policy/policy.h)
 *   POST   /cove/v1/sandboxes/{id}/network/check {url, method}: what would become of it
 *   GET    /cove/v1/sandboxes/{id}/processes
 *   POST   /cove/v1/sandboxes/{id}/exec          Upgrade: cove-exec (http/client/exec_stream.h)
 *   GET, HEAD, PUT, DELETE /cove/v1/sandboxes/{id}/files?path=&user=
 *   GET    /cove/v1/sandboxes/{id}/entries?path=&depth=&user=      NDJSON
 *
 * Errors: {"error":{"code":"not_found","message":"...","hint":"..."}} with the status that Connect gives the code.
 *
 * Who may: over the unix socket root and the service's owner, by peer credentials; over TCP who has the key
 * (Authorization: Bearer, or X-API-Key).
 */
#pragma once

#include "base/str.h"
#include "http/request.h"

#define NATIVE_PREFIX "/cove/v1"
enum { NATIVE_BODY_MAX = 1 << 20 };

struct builder;
struct core;
struct err;
struct event_log;
struct event_verdict;
struct native;
struct refusals;

/* Why no sandbox can be made now: a word, and a sentence without figures, for anybody may ask. Both static. */
struct native_obstacle {
    const char *code, *message;
};

struct native_config {
    struct core *core;        /* borrowed, outlives the façade */
    struct builder *builder;  /* the same; NULL: templates are not built here */
    struct event_log *events; /* borrowed */
    /* Checks the chain of a sandbox's log: event_verify() on a reader of its own, because it is called in another
     * thread. */
    int (*verify)(void *ctx, const char *sandbox, struct event_verdict *ret_verdict, struct err *err);
    void *verify_ctx;
    /* Signs what a log says (daemon/notary.h); in another thread, too. NULL: nothing is signed here. */
    int (*sign)(void *ctx, const char *what, struct buf *ret, struct err *err);
    void *sign_ctx;
    /* What coved says of itself; its message NULL: nothing is in the way. NULL: it is not asked. */
    struct native_obstacle (*supervisor)(void *ctx);
    void *supervisor_ctx;
    struct refusals *refusals; /* borrowed: who was turned away; NULL: is not told */
    uid_t owner_uid;
    bool domain_has_tls;
    uint64_t default_timeout_ms; /* for a request without timeout_ms */
    const char *version;
};

struct native *native_new(const struct native_config *config);
void native_free(struct native *n); /* all requests must have ended */

/* A claim (api/kit/claim.h) of NATIVE_PREFIX. */
bool native_serve(void *native, struct http_request *req);
bool native_claims_metrics(const struct http_request *req); /* the one route that isn't under the prefix */

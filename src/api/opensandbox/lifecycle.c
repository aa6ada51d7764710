/* SPDX-License-Identifier: Apache-2.0 */
/* The lifecycle API: sandboxes and snapshots. */
#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/url.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/templates.h"

enum { PAGE_SIZE = 20, PAGE_SIZE_MAX = 200 };

/* ---- pages ---- */

/* Of a list, that the query asks for. */
struct osb_page {
    uint64_t number, size, from, total;
    json_t *items;
};

/* False: answered. */
static bool page_begin(struct call *c, struct osb_page *p)
{
    *p = (struct osb_page){.items = NULL};
    if (call_query_u64(c, "page", &p->number) < 0 || call_query_u64(c, "pageSize", &p->size) < 0)
        return false;
    p->number = MIN(MAX(p->number, (uint64_t)1), (uint64_t)UINT32_MAX);
    p->size = p->size ? MIN(p->size, (uint64_t)PAGE_SIZE_MAX) : PAGE_SIZE;
    p->from = (p->number - 1) * p->size;
    p->items = json_array();
    return true;
}

/* One more was found: is it on this page? */
static bool page_takes(struct osb_page *p)
{
    uint64_t at = p->total++;
    return at >= p->from && at - p->from < p->size;
}

static void page_answer(struct call *c, struct osb_page *p)
{
    uint64_t pages = (p->total + p->size - 1) / p->size;
    call_value(c, 200,
               json_pack("{s:o,s:{s:I,s:I,s:I,s:I,s:b}}", "items", p->items, "pagination", "page",
                         (json_int_t)p->number, "pageSize", (json_int_t)p->size, "totalItems", (json_int_t)p->total,
                         "totalPages", (json_int_t)pages, "hasNextPage", p->number < pages));
}

/* ---- a sandbox as they see it ---- */

static const char *state_name(enum sandbox_state state)
{
    static const char *const names[] = {
        [SANDBOX_CREATING] = "Pending", [SANDBOX_RUNNING] = "Running",   [SANDBOX_PAUSING] = "Pausing",
        [SANDBOX_PAUSED] = "Paused",    [SANDBOX_RESUMING] = "Resuming", [SANDBOX_STOPPING] = "Stopping",
        [SANDBOX_ENDED] = "Terminated", [SANDBOX_FAILED] = "Failed",
    };
    return (size_t)state < ARRAY_SIZE(names) && names[state] ? names[state] : "Pending";
}

json_t *lifecycle_sandbox(const struct sandbox *sb)
{
    const struct sandbox_info *i = sandbox_info(sb);
    struct str image = sandbox_label(sb, STR(OPENSANDBOX_RESERVED "image")),
               snapshot = sandbox_label(sb, STR(OPENSANDBOX_RESERVED "snapshot")),
               entrypoint = sandbox_label(sb, STR(OPENSANDBOX_RESERVED "entrypoint")),
               extensions = sandbox_label(sb, STR(OPENSANDBOX_RESERVED "extensions")),
               end = sandbox_label(sb, STR(OPENSANDBOX_RESERVED OPENSANDBOX_END)),
               pool = sandbox_label(sb, STR(OPENSANDBOX_RESERVED POOL_KEY));
    end = end.p && str_starts(end, str_of(i->id)) ? str_sub(end, strlen(i->id) + 1) : STR_NULL;
    bool has_failed = end.p && str_eqc(end, OPENSANDBOX_PRE_FAILED);
    json_t *one = json_pack("{s:s,s:{s:s,s:s?,s:o*,s:o*},s:o,s:o*,s:o*}", "id", i->id, "status", "state",
                            has_failed && i->state == SANDBOX_RUNNING ? "Failed" : state_name(i->state), "reason",
                            has_failed                                            ? "PRE_START_FAILED"
                            : end.p && str_starts(end, STR(OPENSANDBOX_PERIODIC)) ? "PERIODIC_HOOK_FAILED"
                            : end.p                                               ? "ENTRYPOINT_ENDED"
                                                                                  : i->end_cause,
                            "message", end.p ? call_text(end) : NULL, "lastTransitionAt", call_time(i->started),
                            "metadata", facade_metadata(i), "createdAt", call_time(i->started), "expiresAt",
                            call_time(i->state == SANDBOX_PAUSED ? 0 : i->end_at));

    if (pool.p)
        (void)json_object_set_new(one, "allocation",
                                  json_pack("{s:s,s:s,s:s}", "mode", "pool", "poolRef",
                                            i->template_alias ? i->template_alias : i->template_id, "state",
                                            "Allocated"));
    if (snapshot.p)
        (void)json_object_set_new(one, "snapshotId", call_text(snapshot));
    else
        (void)json_object_set_new(one, "image",
                                  json_pack("{s:o}", "uri",
                                            image.p
                                                ? call_text(image)
                                                : json_string(i->template_alias ? i->template_alias : i->template_id)));
    /* The protocol's clients insist on it; what another front made has none. */
    (void)json_object_set_new(one, "entrypoint",
                              entrypoint.p ? json_loadb(entrypoint.p, entrypoint.n, 0, NULL) : json_array());
    if (extensions.p)
        (void)json_object_set_new(one, "extensions", json_loadb(extensions.p, extensions.n, 0, NULL));
    return one;
}

/* ---- listing ---- */

struct filter {
    struct osb_page page;
    struct str states[8];
    size_t n_states;
    struct pair *metadata;
    size_t n_metadata;
};

static bool is_state(const struct filter *f, const char *name)
{
    for (size_t k = 0; k < f->n_states; k++)
        if (str_eq_nocase(f->states[k], str_of(name)))
            return true;
    return !f->n_states;
}

static bool lifecycle_list_one(void *ctx, struct sandbox *sb)
{
    struct filter *f = ctx;
    const struct sandbox_info *i = sandbox_info(sb);
    bool fits = is_state(f, state_name(i->state));
    for (size_t k = 0; k < f->n_metadata; k++) {
        struct str has = sandbox_label(sb, f->metadata[k].key);
        fits &= has.p && str_eq(has, f->metadata[k].value);
    }
    if (fits && page_takes(&f->page))
        (void)json_array_append_new(f->page.items, lifecycle_sandbox(sb));
    return true;
}

/* Where it goes; NULL: it is not asked for. */
static json_t *list_pending(void *ctx, const char *state, const json_t *metadata)
{
    struct filter *f = ctx;
    bool fits = is_state(f, state);
    for (size_t k = 0; k < f->n_metadata; k++) {
        const json_t *value = json_object_getn(metadata, f->metadata[k].key.p, f->metadata[k].key.n);
        fits &= value && str_eqc(f->metadata[k].value, json_string_value(value));
    }
    return fits && page_takes(&f->page) ? f->page.items : NULL;
}

/* state=A&state=B */
static int filter_states(struct call *c, struct filter *f, struct err *err)
{
    struct str rest = http_query(c->req);
    for (struct url_param p; url_query_next(&rest, &p);) {
        if (str_eqc(p.name, "state") &&
            (f->n_states == ARRAY_SIZE(f->states) ||
             url_decode(http_arena(c->req), p.value, URL_QUERY, &f->states[f->n_states++]) < 0))
            return err_set(err, ERR_INVALID_ARGUMENT, "state: too many, or malformed");
    }
    return 0;
}

/* metadata=<a query of its own, encoded once more> */
static int read_filter(struct call *c, struct filter *f, struct err *err)
{
    struct arena *a = http_arena(c->req);
    struct str value, pairs = STR("");
    size_t max = 1;
    if (http_query_get(c->req, "metadata", &pairs) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "metadata: malformed");
    for (size_t k = 0; k < pairs.n; k++)
        max += pairs.p[k] == '&';
    f->metadata = arena_alloc(a, max * sizeof(*f->metadata));
    for (struct url_param p; url_query_next(&pairs, &p);) {
        struct pair *to = &f->metadata[f->n_metadata];
        value = p.value.p ? p.value : STR("");
        if (!p.value.p || url_decode(a, p.name, URL_QUERY, &to->key) < 0 ||
            url_decode(a, value, URL_QUERY, &to->value) < 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "metadata must be key=value&key=value, encoded as one value");
        f->n_metadata++;
    }
    return 0;
}

static void list_sandboxes(struct call *c)
{
    struct filter f = {.n_states = 0};
    struct err err;
    if (filter_states(c, &f, &err) < 0) {
        call_fail_err(c, &err);
    } else if (read_filter(c, &f, &err) < 0) {
        opensandbox_fail(c, 400, "INVALID_METADATA_FORMAT", err.msg);
    } else if (page_begin(c, &f.page)) {
        pending_each(c, list_pending, &f);
        access_each_sandbox(c, lifecycle_list_one, &f);
        page_answer(c, &f.page);
    }
}

/* ---- one of them ---- */

static void get_sandbox(struct call *c)
{
    call_value(c, 200, lifecycle_sandbox(c->sandbox));
}

static void on_done(void *ctx, struct sandbox *sb UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_empty(c, c->route->method == HTTP_METHOD_DELETE ? 204 : 202);
}

static void kill_sandbox(struct call *c)
{
    call_held(c, sandbox_kill(c->sandbox, &c->actor, on_done, call_hold(c), &c->err));
}

static void pause_sandbox(struct call *c)
{
    call_held(c, sandbox_pause(c->sandbox, &c->actor, true, on_done, call_hold(c), &c->err));
}

static void resume_sandbox(struct call *c)
{
    struct sandbox_resume how = {.has_timeout = false};
    call_held(c, sandbox_resume(c->sandbox, &c->actor, &how, on_done, call_hold(c), &c->err));
}

static void lifecycle_forked(void *ctx, size_t i, struct sandbox *fork, const struct err *err)
{
    struct call *c = ctx;
    if (i > 0)
        call_unref(c);
    else if (c->req && !c->answered && err)
        call_fail_err(c, err);
    else if (c->req && !c->answered)
        call_value(c, 202, lifecycle_sandbox(fork));
}

static void lifecycle_fork(struct call *c)
{
    int64_t timeout_s = -1;
    if (CALL_WANTS(c, JSON_WANT_INT("timeout", 1, INT32_MAX, &timeout_s)))
        call_held(c,
                  sandbox_fork(c->sandbox, &c->actor, false, 1, timeout_s < 0 ? UINT64_MAX : (uint64_t)timeout_s * 1000,
                               lifecycle_forked, call_hold(c), &c->err));
}

static void lifecycle_renew(struct call *c)
{
    struct str text = STR_NULL;
    usec_t at, now = clock_real();
    if (!CALL_WANTS(c, JSON_NEED_STR("expiresAt", &text)))
        return;
    if (clock_parse(text, &at) < 0 || at <= now)
        call_refuse(c, ERR_INVALID_ARGUMENT, "expiresAt must be a time (RFC 3339) in the future");
    else if (call_ok(c, sandbox_set_timeout(c->sandbox, &c->actor, (at - now + USEC_PER_MS - 1) / USEC_PER_MS, false,
                                            &c->err)))
        call_value(c, 200, json_pack("{s:o}", "expiresAt", call_time(sandbox_info(c->sandbox)->end_at)));
}

static void patch_metadata(struct call *c)
{
    const struct sandbox_info *i = sandbox_info(c->sandbox);
    size_t n = 0, max = i->n_metadata + json_object_size(c->body);
    struct pair *all = arena_alloc(http_arena(c->req), (max + 1) * sizeof(*all));
    struct err err;
    for (size_t k = 0; k < i->n_metadata; k++) {
        AUTO_FREE char *name = mem_strndup(i->metadata[k].key.p, i->metadata[k].key.n);
        if (!json_object_get(c->body, name))
            all[n++] = i->metadata[k];
    }
    JSON_FOREACH_MEMBER (key, value, c->body) {
        struct str text = json_is_string(value) ? json_str(value) : STR("");
        if (!json_is_string(value) && !json_is_null(value)) {
            call_refuse(c, ERR_INVALID_ARGUMENT, "metadata '%.64s' must be a string or null", key);
            return;
        }
        if (create_check_label(str_of(key), text, &err) < 0) {
            opensandbox_fail(c, 400, "SANDBOX::INVALID_METADATA_LABEL", err.msg);
            return;
        }
        if (json_is_string(value))
            all[n++] = (struct pair){str_of(key), text};
    }
    if (call_ok(c, sandbox_set_metadata(c->sandbox, &c->actor, all, n, &c->err)))
        get_sandbox(c);
}

void lifecycle_of_pending(struct call *c, struct pending *p)
{
    if (c->route->handler == get_sandbox)
        call_value(c, 200, pending_json(p));
    else if (c->route->handler == kill_sandbox)
        pending_remove(c, p);
    else if (pending_why(lifecycle_of(c), c, c->args[0]))
        opensandbox_fail(c, 409, PENDING_FAILED, pending_why(lifecycle_of(c), c, c->args[0]));
    else if (c->route->handler == proxy_endpoint)
        proxy_endpoint(c);
    else
        call_refuse(c, ERR_FAILED_PRECONDITION, "the sandbox is not ready yet: its image is being pulled");
}

/* ---- snapshots ---- */

/* A name without the namespace that the core puts in front of it, whose slash clients don't expect in an id. */
static const char *snapshot_tail(const char *name)
{
    const char *slash = name ? strrchr(name, '/') : NULL;
    return slash ? slash + 1 : name;
}

static json_t *snapshot_json(const struct template *t)
{
    return json_pack("{s:s,s:s?,s:s?,s:{s:s,s:o*},s:o*}", "id", t->ref ? snapshot_tail(t->ref) : t->id, "sandboxId",
                     t->source, "name", snapshot_tail(t->name), "status", "state", "Ready", "lastTransitionAt",
                     call_time(t->built), "createdAt", call_time(t->built));
}

static void on_snapshot(void *ctx, const struct template *t, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    http_add_header(
        c->req, STR("location"),
        str_of(arena_printf(http_arena(c->req), "/v1/snapshots/%s", t->ref ? snapshot_tail(t->ref) : t->id)));
    call_value(c, 202, snapshot_json(t));
}

static void make_snapshot(struct call *c)
{
    struct str name = STR("");
    const struct template *same;
    char tag[12];
    struct err err;
    if (!CALL_WANTS(c, JSON_WANT_STR("name", &name)))
        return;
    id_token(tag, sizeof(tag) - 1);
    /* Here a name may be given again, and there it would be given away. */
    if (name.n && core_template_find(call_core(c), c->actor.who.view, name, &same, &err) == 0 && same->is_snapshot)
        name = str_of(arena_printf(http_arena(c->req), "%.*s:%s", STR_ARG(name), tag));
    call_held(c, sandbox_snapshot(c->sandbox, &c->actor, name, false, on_snapshot, call_hold(c), &c->err));
}

struct lifecycle_wanted {
    struct str sandbox, name;
    struct filter states;
};

static bool lifecycle_fits(const void *ctx, const struct template *t)
{
    const struct lifecycle_wanted *s = ctx;
    return (!s->sandbox.p || (t->source && str_eqc(s->sandbox, t->source))) &&
           (!s->name.p || (t->name && str_eqc(s->name, snapshot_tail(t->name)))) && is_state(&s->states, "Ready");
}

static void list_snapshots(struct call *c)
{
    struct lifecycle_wanted s = {.sandbox = STR_NULL};
    struct osb_page page;
    AUTO_FREE const struct template **found = NULL;
    (void)call_query(c, "sandboxId", &s.sandbox);
    (void)call_query(c, "name", &s.name);
    if (!call_ok(c, filter_states(c, &s.states, &c->err)) || !page_begin(c, &page))
        return;
    const size_t n = core_snapshots(call_core(c), c->actor.who.view, lifecycle_fits, &s, &found);
    for (size_t i = 0; i < n; i++)
        if (page_takes(&page))
            (void)json_array_append_new(page.items, snapshot_json(found[i]));
    page_answer(c, &page);
}

static const struct template *find_snapshot(struct call *c)
{
    const struct template *t;
    struct err err;
    if (core_template_find(call_core(c), c->actor.who.view, c->args[0], &t, &err) == 0 && t->is_snapshot)
        return t;
    call_fail(c, 404, "there is no snapshot %.*s", STR_ARG_MAX(c->args[0], 64));
    return NULL;
}

static void get_snapshot(struct call *c)
{
    const struct template *t = find_snapshot(c);
    if (t)
        call_value(c, 200, snapshot_json(t));
}

static void remove_snapshot(struct call *c)
{
    if (find_snapshot(c) && call_ok(c, core_template_remove(call_core(c), &c->actor, c->args[0], &c->err)))
        call_empty(c, 204);
}

const struct route lifecycle_routes[] = {
    {HTTP_METHOD_GET, "/sandboxes", list_sandboxes, 0, NULL},
    {HTTP_METHOD_POST, "/sandboxes", create_sandbox, ROUTE_BODY, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}", get_sandbox, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_DELETE, "/sandboxes/{}", kill_sandbox, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_PATCH, "/sandboxes/{}/metadata", patch_metadata, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/pause", pause_sandbox, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/resume", resume_sandbox, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/fork", lifecycle_fork, ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/renew-expiration", lifecycle_renew, ROUTE_BODY | ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/snapshots", make_snapshot, ROUTE_BODY_MAY | ROUTE_SANDBOX | ROUTE_WIDE, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}/endpoints/{}", proxy_endpoint, ROUTE_SANDBOX | ROUTE_USE, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}/diagnostics/logs", diagnostics_get, ROUTE_SANDBOX, "logs"},
    {HTTP_METHOD_GET, "/sandboxes/{}/diagnostics/events", diagnostics_get, ROUTE_SANDBOX, "events"},
    {HTTP_METHOD_GET, "/sandboxes/{}/diagnostics/logs/content", diagnostics_content, ROUTE_OPEN, "logs"},
    {HTTP_METHOD_GET, "/sandboxes/{}/diagnostics/events/content", diagnostics_content, ROUTE_OPEN, "events"},
    {HTTP_METHOD_GET, "/sandboxes/{}/diagnostics/inspect", diagnostics_inspect, ROUTE_SANDBOX, "inspect"},
    {HTTP_METHOD_GET, "/sandboxes/{}/diagnostics/summary", diagnostics_inspect, ROUTE_SANDBOX, "summary"},
    {HTTP_METHOD_GET, "/snapshots", list_snapshots, 0, NULL},
    {HTTP_METHOD_GET, "/snapshots/{}", get_snapshot, 0, NULL},
    {HTTP_METHOD_DELETE, "/snapshots/{}", remove_snapshot, 0, NULL},
    {HTTP_METHOD_POST, "/metrics/events", diagnostics_telemetry, ROUTE_OPEN, NULL},
    {HTTP_METHOD_GET, "/pools", pools_list, 0, NULL},
    {HTTP_METHOD_POST, "/pools", pools_make, ROUTE_BODY | ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_GET, "/pools/{}", pools_get, 0, NULL},
    {HTTP_METHOD_PUT, "/pools/{}", pools_set, ROUTE_BODY | ROUTE_OPERATOR, NULL},
    {HTTP_METHOD_DELETE, "/pools/{}", pools_remove, ROUTE_OPERATOR, NULL},
};
const size_t lifecycle_n_routes = ARRAY_SIZE(lifecycle_routes);

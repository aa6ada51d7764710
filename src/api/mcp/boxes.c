/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes as a whole: making, listing, ending, copying; what they may reach, and what was recorded of them. */
#include "api/kit/diff_read.h"
#include "api/kit/forks.h"
#include "api/mcp/handlers.h"
#include "base/mem.h"
#include "event/log.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/network/network.h"
#include "sandbox/templates.h"
#include "template/builds.h"
#include "template/name.h"

enum { TIMEOUT_S = 3600, EVENTS_BYTES = 192 * 1024 };

/* An environment has its id by container-use's name for it, too. */
static json_t *sandbox_json(struct call *c, const struct sandbox *sb)
{
    const struct sandbox_info *i = sandbox_info(sb);
    const char *id = str_starts(str_of(mcp_call_of(c)->tool->name), STR("environment_")) ? i->id : NULL;
    return json_pack("{s:s*,s:s,s:s,s:s,s:o*,s:o*,s:o}", "id", id, "sandbox", i->id, "state",
                     sandbox_state_name(i->state), "template", i->template_alias ? i->template_alias : i->template_id,
                     "started_at", call_time(i->started), "ends_at", call_time(i->end_at), "metadata",
                     facade_metadata(i));
}

static void sandbox_done(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        tool_result(c, sandbox_json(c, sb), STR_NULL);
}

/* Ours go on behind the client's, none of which may be named like them. */
static void add_labels(struct call *c, struct sandbox_spec *spec, const struct pair *given, size_t n, struct str title,
                       struct str source, bool keep)
{
    struct pair *all = arena_alloc(http_arena(c->req), (n + 3) * sizeof(*all));
    const struct mcp_session *s = mcp_call_of(c)->session;
    for (size_t i = 0; given && i < n; i++)
        if (!str_eqc(given[i].key, MCP_SESSION_LABEL))
            all[spec->n_metadata++] = given[i];
    if (title.n)
        all[spec->n_metadata++] = (struct pair){STR("title"), title};
    if (source.n)
        all[spec->n_metadata++] = (struct pair){STR("source"), source};
    if (s && !keep)
        all[spec->n_metadata++] = (struct pair){STR(MCP_SESSION_LABEL), arena_str(http_arena(c->req), str_of(s->tag))};
    spec->metadata = all;
}

void sandbox_create_tool(struct call *c)
{
    struct str title = STR(""), source = STR(""), ref = STR("");
    struct sandbox_spec spec = {.template_ref = STR("base"), .secure = true};
    const struct pair *labels = NULL;
    int64_t timeout_s = TIMEOUT_S, memory_mb = 0, cpu_milli = 0;
    size_t n_labels = 0;
    bool keep = false;
    if (!TOOL_WANTS(c, JSON_WANT_STR("template", &spec.template_ref),
                    JSON_WANT_INT("timeout_s", 1, INT64_MAX / 1000, &timeout_s), JSON_WANT_BOOL("keep", &keep),
                    JSON_WANT_PAIRS("env", &spec.envs, &spec.n_envs), JSON_WANT_PAIRS("metadata", &labels, &n_labels),
                    JSON_WANT_INT("memory_mb", 1, 1 << 30, &memory_mb),
                    JSON_WANT_INT("cpu_milli", 1, INT32_MAX, &cpu_milli), JSON_WANT_STR("title", &title),
                    JSON_WANT_STR("source", &source), JSON_WANT_STR("from_git_ref", &ref)))
        return;
    if (ref.n) {
        call_refuse(c, ERR_UNIMPLEMENTED, "from_git_ref: no repository is copied into an environment; clone it inside");
        return;
    }
    add_labels(c, &spec, labels, n_labels, title, source, keep);
    spec.timeout_ms = (uint64_t)timeout_s * 1000;
    spec.memory_bytes = (uint64_t)memory_mb << 20;
    spec.cpu_milli = (uint32_t)cpu_milli;
    call_held(c, sandbox_create(call_core(c), &c->actor, &spec, sandbox_done, call_hold(c), &c->err));
}

struct boxes_page {
    struct call *call;
    json_t *all;
    int64_t cursor, seen;
};

static bool boxes_list_one(void *ctx, struct sandbox *sb)
{
    struct boxes_page *p = ctx;
    if (!sandbox_info(sb)->hidden && p->seen++ >= p->cursor && json_array_size(p->all) < MCP_ITEMS_MAX)
        (void)json_array_append_new(p->all, sandbox_json(p->call, sb));
    return true;
}

void sandbox_list_tool(struct call *c)
{
    struct boxes_page p = {.call = c};
    if (!TOOL_WANTS(c, JSON_WANT_INT("cursor", 0, INT32_MAX, &p.cursor)))
        return;
    p.all = json_array();
    access_each_sandbox(c, boxes_list_one, &p);
    json_t *content = json_pack("{s:o}", "sandboxes", p.all);
    if (p.cursor + (int64_t)json_array_size(p.all) < p.seen)
        (void)json_object_set_new(content, "next", json_integer(p.cursor + (int64_t)json_array_size(p.all)));
    tool_result(c, content, STR_NULL);
}

void sandbox_show_tool(struct call *c)
{
    if (tool_wants(c, NULL, 0))
        tool_result(c, sandbox_json(c, c->sandbox), STR_NULL);
}

void sandbox_title_tool(struct call *c)
{
    struct str title = STR("");
    if (TOOL_WANTS(c, JSON_NEED_STR("title", &title)) &&
        call_ok(c, sandbox_set_label(c->sandbox, &c->actor, STR("title"), title, &c->err)))
        tool_result(c, sandbox_json(c, c->sandbox), STR_NULL);
}

static void sandbox_killed(void *ctx, struct sandbox *sb UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        tool_result(c, json_pack("{s:b}", "ended", 1), STR_NULL);
}

void sandbox_kill_tool(struct call *c)
{
    if (tool_wants(c, NULL, 0))
        call_held(c, sandbox_kill(c->sandbox, &c->actor, sandbox_killed, call_hold(c), &c->err));
}

/* ---- copies ---- */

static void snapshot_made(void *ctx, const struct template *t, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        tool_result(c, json_pack("{s:s,s:s*}", "snapshot", t->ref ? t->ref : t->id, "name", t->name), STR_NULL);
}

/*
 * Others make their sandboxes from what a name leads to, and `cove env` from what it finds by names of its own: an
 * agent gives new ones.
 */
static bool snapshot_is_new(struct call *c, struct str name)
{
    static const struct str own[] = {STR("cove-copy-"), STR("devcontainer-")};
    struct template_name parsed = {.name = ""};
    struct template_info info;
    struct err err;
    bool is_taken = name.n && template_name_parse(name, &parsed, &err) == 0 &&
                    template_info_find(core_templates(call_core(c)), c->actor.who.view, name, &info, &err) == 0;
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        is_taken |= str_starts(str_of(parsed.name), own[i]);
    if (is_taken)
        call_refuse(c, ERR_ALREADY_EXISTS, "the name '%.64s' is taken: give another one", parsed.name);
    return !is_taken;
}

void snapshot_tool(struct call *c)
{
    struct str name = STR("");
    if (TOOL_WANTS(c, JSON_WANT_STR("name", &name)) && snapshot_is_new(c, name))
        call_held(c, sandbox_snapshot(c->sandbox, &c->actor, name, false, snapshot_made, call_hold(c), &c->err));
}

static json_t *fork_json(struct call *c, const struct sandbox *fork, const struct err *err)
{
    return err ? json_pack("{s:o}", "error", call_cstr(err->msg)) : sandbox_json(c, fork);
}

static void fork_made(struct call *c, json_t *all)
{
    tool_result(c, json_pack("{s:o}", "forks", all), STR_NULL);
}

void fork_tool(struct call *c)
{
    int64_t count = 1, timeout_s = 0;
    if (!TOOL_WANTS(c, JSON_WANT_INT("count", 1, FORKS_MAX, &count),
                    JSON_WANT_INT("timeout_s", 1, INT64_MAX / 1000, &timeout_s)))
        return;
    struct forks *f = forks_new(c, (size_t)count, fork_json, fork_made);
    forks_begun(f, sandbox_fork(c->sandbox, &c->actor, false, (size_t)count,
                                timeout_s ? (uint64_t)timeout_s * 1000 : UINT64_MAX, forks_on, f, &c->err));
}

/* ---- what differs ---- */

struct differing {
    struct diff_read *read;
    json_t *changes;
    size_t n;
};

static void differing_closed(struct call *c)
{
    struct differing *d = mcp_call_of(c)->own;
    diff_read_close(d->read);
    json_decref(d->changes);
}

static void differing_change(void *ctx, const struct layers_change *change)
{
    struct differing *d = mcp_call_of(ctx)->own;
    AUTO_FREE char *path = mem_printf("/%.*s", STR_ARG(change->path));
    if (d->n++ < MCP_ITEMS_MAX)
        (void)json_array_append_new(d->changes,
                                    json_pack("{s:s,s:s,s:o,s:I}", "change", change->change, "type", change->type,
                                              "path", call_text(str_of(path)), "size", (json_int_t)change->size));
}

static void differing_end(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    struct differing *d = mcp_call_of(c)->own;
    if (err)
        call_fail_hint(c, err, err->code == ERR_RESOURCE_EXHAUSTED ? DIFF_READ_HINT : NULL);
    else
        tool_result(c,
                    json_pack("{s:O,s:I,s:b}", "changes", d->changes, "total", (json_int_t)d->n, "truncated",
                              d->n > MCP_ITEMS_MAX),
                    STR_NULL);
}

void diff_tool(struct call *c)
{
    static const struct diff_read_ops ops = {.on_change = differing_change, .on_end = differing_end};
    struct differing *d = arena_alloc(http_arena(c->req), sizeof(*d));
    struct str against = STR("");
    if (!TOOL_WANTS(c, JSON_WANT_STR("against", &against)))
        return;
    *d = (struct differing){.n = 0};
    if (!call_ok(c, diff_read_start(call_core(c), c->actor.who.view, against, str_of(sandbox_info(c->sandbox)->id),
                                    &ops, c, &d->read, &c->err)))
        return;
    d->changes = json_array();
    mcp_call_of(c)->own = d;
    mcp_call_of(c)->cleanup = differing_closed;
}

/* ---- what it may reach, and what was recorded ---- */

void policy_tool(struct call *c)
{
    if (tool_wants(c, NULL, 0))
        tool_result(c,
                    json_pack("{s:O,s:b}", "policy", network_policy(c->sandbox), "in_force", network_is_up(c->sandbox)),
                    STR_NULL);
}

struct log_page {
    const struct str *kinds; /* their beginnings; n_kinds 0: all */
    size_t n_kinds;
    json_t *events;
    size_t bytes;
    uint64_t next;
    bool is_full;
};

static bool log_page_wants(const struct log_page *p, struct str kind)
{
    for (size_t i = 0; i < p->n_kinds; i++)
        if (str_starts(kind, p->kinds[i]))
            return true;
    return !p->n_kinds;
}

static bool log_page_event(const struct event *e, void *ctx)
{
    struct log_page *p = ctx;
    if (log_page_wants(p, e->kind_name)) {
        if (json_array_size(p->events) == MCP_ITEMS_MAX || p->bytes > EVENTS_BYTES)
            return false;
        json_t *data = json_loadb(e->data.p, e->data.n, JSON_ALLOW_NUL, NULL);
        (void)json_array_append_new(p->events,
                                    json_pack("{s:I,s:o*,s:o,s:o,s:o,s:I,s:o}", "seq", (json_int_t)e->seq, "time",
                                              call_time(e->time), "kind", call_text(e->kind_name), "grade",
                                              call_text(e->grade), "actor", call_text(e->actor), "cause",
                                              (json_int_t)e->cause, "data", data ? data : json_null()));
        p->bytes += e->data.n + 200;
    }
    p->next = e->seq + 1;
    return true;
}

static void log_page_answer(struct call *c, struct log_page *p, int64_t from)
{
    struct event_log *log = mcp_of(c)->config.events;
    const char *id = sandbox_info(c->sandbox)->id;
    struct event_bounds bounds;
    p->next = (uint64_t)from;
    p->events = json_array();
    if (!call_ok(c, event_bounds_get(log, id, &bounds, &c->err)) ||
        !call_ok(c, event_read(log, id, (uint64_t)from, MCP_SCAN_MAX, log_page_event, p, &c->err))) {
        json_decref(p->events);
        return;
    }
    tool_result(
        c, json_pack("{s:o,s:I,s:b}", "events", p->events, "next", (json_int_t)p->next, "more", p->next <= bounds.last),
        STR_NULL);
}

void events_tool(struct call *c)
{
    struct log_page p = {.n_kinds = 0};
    int64_t from = 0;
    if (TOOL_WANTS(c, JSON_WANT_INT("from", 0, INT64_MAX, &from), JSON_WANT_STRS("kinds", &p.kinds, &p.n_kinds)))
        log_page_answer(c, &p, from);
}

void denials_tool(struct call *c)
{
    static const struct str kinds[] = {
        {"net.denied", 10}, {"net.unresolved", 14}, {"net.misuse", 10}, {"guard.denied", 12}};
    struct log_page p = {.kinds = kinds, .n_kinds = ARRAY_SIZE(kinds)};
    int64_t from = 0;
    if (TOOL_WANTS(c, JSON_WANT_INT("from", 0, INT64_MAX, &from)))
        log_page_answer(c, &p, from);
}

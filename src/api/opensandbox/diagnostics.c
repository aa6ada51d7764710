/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: what the sandbox's log tells, as text. Logs are what processes wrote and how they ended, events
 * everything else, and each by its scope. What is longer than INLINE_MAX is given by a signed URL. Without a scope the
 * answer is the text itself, as OpenSandbox's tools for operators want it.
 */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"
#include "event/log.h"

enum {
    LOG_EVENTS = 4000,
    LOG_BYTES = 1 << 20,
    INLINE_MAX = 64 * 1024,
    FIRST_EVENTS = 64,
    TAGGED_MAX = 64,
    URL_S = 600
};

static const struct {
    const char *scope;
    const char *kinds[8]; /* what is in front of the dot */
} diagnostics_scopes[] = {
    {"lifecycle", {"sandbox"}},
    {"runtime", {"limit", "agent", "guard", "service", "log", "volume"}},
    {"network", {"net", "dial"}},
    {"process", {"exec", "code", "file"}},
    {"container", {"exec", "guard"}}, /* of the entrypoint and the hooks */
    {"all", {"sandbox", "limit", "agent", "guard", "service", "log", "volume"}},
};

struct diagnostics {
    const char *id;
    size_t scope;
    bool is_logs, is_cut, is_tagged_only, is_all;
    usec_t since;
    uint64_t tagged[TAGGED_MAX]; /* seqs of what began the entrypoint and the hooks */
    size_t n_tagged;
    struct buf text;
};

static bool diagnostics_tag(const struct event *e, void *ctx)
{
    struct diagnostics *d = ctx;
    if ((e->kind == EVENT_EXEC_START || e->kind == EVENT_GUARD_DENIED) && d->n_tagged < TAGGED_MAX &&
        memmem(e->data.p, e->data.n, "\"tag\":\"" OPENSANDBOX_TAG, strlen("\"tag\":\"" OPENSANDBOX_TAG)))
        d->tagged[d->n_tagged++] = e->seq;
    return true;
}

static bool diagnostics_wants(const struct diagnostics *d, const struct event *e)
{
    bool is_output = e->kind == EVENT_EXEC_OUTPUT || e->kind == EVENT_EXEC_EXIT || e->kind == EVENT_CODE_DONE,
         is_in = d->is_all;
    struct str kind = str_before(e->kind_name, '.');
    for (size_t i = 0; diagnostics_scopes[d->scope].kinds[i]; i++)
        is_in |= str_eqc(kind, diagnostics_scopes[d->scope].kinds[i]);
    if (d->is_tagged_only) {
        bool is_tagged = false;
        for (size_t i = 0; i < d->n_tagged; i++)
            is_tagged |= d->tagged[i] == e->seq || d->tagged[i] == e->cause;
        is_in &= is_tagged;
    }
    /* Of what writes nothing its events are its logs, too. */
    return is_in && e->time >= d->since &&
           (d->is_logs ? is_output || !str_eqc(kind, "exec") : e->kind != EVENT_EXEC_OUTPUT);
}

/* Output as it was written, a line each, behind its time. */
static bool diagnostics_output(struct diagnostics *d, const struct event *e, const char *time)
{
    AUTO_JSON json_t *data = json_loadb(e->data.p, e->data.n, JSON_ALLOW_NUL, NULL);
    json_t *runs = json_object_get(data, "output");
    JSON_FOREACH (run, runs) {
        JSON_FOREACH_MEMBER (key, value, run) {
            struct str rest = json_str(value), line;
            while (rest.n && str_split(&rest, '\n', &line)) {
                buf_printf(&d->text, "%s %s ", time, key);
                buf_append_str(&d->text, line);
                buf_append_char(&d->text, '\n');
            }
        }
    }
    return json_array_size(runs);
}

static bool diagnostics_line(void *ctx, usec_t at, const char *level, const char *logger, const char *message)
{
    struct diagnostics *d = ctx;
    char time[CLOCK_TEXT_MAX];
    clock_format(at, 3, time);
    buf_printf(&d->text, "%s %s %s %s\n", time, level, logger, message);
    return true;
}

static bool diagnostics_event(const struct event *e, void *ctx)
{
    struct diagnostics *d = ctx;
    char time[CLOCK_TEXT_MAX];
    (void)diagnostics_tag(e, d);
    clock_format(e->time, 3, time);
    if (diagnostics_wants(d, e) && !(e->kind == EVENT_EXEC_OUTPUT && diagnostics_output(d, e, time)))
        (void)sandbox_log_line(e, diagnostics_line, d);
    /* The newest is what is wanted. */
    while (buf_len(&d->text) > LOG_BYTES / 2) {
        const char *end = memchr(buf_data(&d->text) + LOG_BYTES / 8, '\n', buf_len(&d->text) - LOG_BYTES / 8);
        buf_consume(&d->text, end ? (size_t)(end - buf_data(&d->text)) + 1 : buf_len(&d->text));
        d->is_cut = true;
    }
    return true;
}

static int diagnostics_read(struct call *c, struct diagnostics *d, struct err *err)
{
    struct sandbox_log_walk walk;
    struct event_bounds bounds;
    d->is_tagged_only = strcmp(diagnostics_scopes[d->scope].scope, "container") == 0;
    d->is_all = strcmp(diagnostics_scopes[d->scope].scope, "all") == 0;
    if (sandbox_log_walk_init(&walk, call_core(c), str_of(d->id), 0, 1, err) < 0 ||
        event_bounds_get(walk.log, d->id, &bounds, err) < 0)
        return -1;
    uint64_t from = bounds.last > LOG_EVENTS ? MAX(bounds.first, bounds.last - LOG_EVENTS + 1) : bounds.first;
    d->is_cut |= from > bounds.first;
    if (from > bounds.first &&
        event_read(walk.log, d->id, bounds.first, MIN((uint64_t)FIRST_EVENTS, from - bounds.first), diagnostics_tag, d,
                   err) < 0)
        return -1;
    return event_read(walk.log, d->id, from, LOG_EVENTS, diagnostics_event, d, err) < 0 ? -1 : 0;
}

/* False: answered. */
static bool diagnostics_ask(struct call *c, struct str scope, struct diagnostics *d)
{
    while (d->scope < ARRAY_SIZE(diagnostics_scopes) && !str_eqc(scope, diagnostics_scopes[d->scope].scope))
        d->scope++;
    if (d->scope < ARRAY_SIZE(diagnostics_scopes))
        return true;
    return call_refuse(c, ERR_INVALID_ARGUMENT, "scope must be container, lifecycle, runtime, network, process or all");
}

static void diagnostics_text(struct call *c, const struct diagnostics *d)
{
    call_respond(c, 200, "text/plain; charset=utf-8", buf_str(&d->text));
}

/* What is asked without a scope: "tail" or "limit" lines, "since" such a time ago. */
static void diagnostics_legacy(struct call *c, struct diagnostics *d)
{
    uint64_t lines = 0, limit = 0, ago = 0;
    struct str since;
    d->scope = ARRAY_SIZE(diagnostics_scopes) - 1;
    if (call_query_u64(c, "tail", &lines) < 0 || call_query_u64(c, "limit", &limit) < 0)
        return;
    if (call_query(c, "since", &since) && since.n && schedule_duration(since, &ago) < 0) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "since must be a duration such as 90s or 1h30m");
        return;
    }
    d->since = ago ? clock_real() - MIN(clock_real(), ago * USEC_PER_SEC) : 0;
    http_add_header(c->req, STR("deprecation"), STR("true"));
    if (!call_ok(c, diagnostics_read(c, d, &c->err)))
        return;
    lines = lines ? lines : limit;
    size_t at = buf_len(&d->text);
    while (lines && at && (at == buf_len(&d->text) || buf_data(&d->text)[at - 1] != '\n' || --lines))
        at--;
    if (lines == 0 && (limit || call_query(c, "tail", &since)))
        buf_consume(&d->text, at);
    diagnostics_text(c, d);
}

void diagnostics_get(struct call *c)
{
    struct diagnostics d = {.id = sandbox_info(c->sandbox)->id,
                            .is_logs = strcmp(c->route->what, "logs") == 0,
                            .text = BUF_INIT(LOG_BYTES)};
    const struct sandbox_info *i = sandbox_info(c->sandbox);
    struct str scope = STR("");
    char ticket[PROXY_TICKET_MAX];
    if (!call_query(c, "scope", &scope)) {
        diagnostics_legacy(c, &d);
    } else if (diagnostics_ask(c, scope, &d)) {
        if (call_ok(c, diagnostics_read(c, &d, &c->err))) {
            uint64_t until = clock_real() / USEC_PER_SEC + URL_S;
            bool is_inline = buf_len(&d.text) <= INLINE_MAX || !i->access_token;
            json_t *answer =
                json_pack("{s:s,s:s,s:s%,s:s,s:s,s:I,s:b}", "sandboxId", d.id, "kind", c->route->what, "scope", scope.p,
                          scope.n, "delivery", is_inline ? "inline" : "url", "contentType", "text/plain; charset=utf-8",
                          "contentLength", (json_int_t)buf_len(&d.text), "truncated", d.is_cut);
            if (is_inline) {
                (void)json_object_set_new(
                    answer, "content",
                    json_stringn_nocheck(buf_len(&d.text) ? buf_data(&d.text) : "", buf_len(&d.text)));
            } else {
                struct str host = http_header_get(c->req, "host");
                proxy_ticket(i, 0, until, ticket);
                (void)json_object_set_new(answer, "contentUrl",
                                          json_sprintf("%s://%.*s/v1/sandboxes/%s%s/diagnostics/%s/content?scope=%.*s",
                                                       http_is_tls(c->req) ? "https" : "http", STR_ARG(host), d.id,
                                                       ticket, c->route->what, STR_ARG(scope)));
                (void)json_object_set_new(answer, "expiresAt", call_time(until * USEC_PER_SEC));
            }
            if (d.is_cut)
                (void)json_object_set_new(answer, "warnings",
                                          json_pack("[s]", "older lines are left out: 'cove log' has all"));
            call_value(c, 200, answer);
        }
    }
    buf_fini(&d.text);
}

/* By its signed URL. */
void diagnostics_content(struct call *c)
{
    struct diagnostics d = {.is_logs = strcmp(c->route->what, "logs") == 0, .text = BUF_INIT(LOG_BYTES)};
    struct str ticket = c->args[0], id, scope = STR("");
    (void)str_split(&ticket, '-', &id);
    struct sandbox *sb = id_is_sandbox(id) ? sandbox_find(call_core(c), id) : NULL;
    const char *why = "this address is not valid";

    if (sb && ticket.p && !sandbox_info(sb)->hidden)
        why = proxy_check_ticket(sandbox_info(sb), 0, ticket);
    (void)call_query(c, "scope", &scope);
    if (why) {
        facade_note_refusal(c->facade, c->req, REFUSAL_WRONG_TOKEN);
        call_refuse(c, ERR_UNAUTHENTICATED, "%s", why);
    } else if (diagnostics_ask(c, scope, &d)) {
        d.id = sandbox_info(sb)->id;
        if (call_ok(c, diagnostics_read(c, &d, &c->err)))
            diagnostics_text(c, &d);
    }
    buf_fini(&d.text);
}

/* "inspect": its state; "summary": and the end of both texts. */
void diagnostics_inspect(struct call *c)
{
    bool is_summary = strcmp(c->route->what, "summary") == 0;
    AUTO_JSON json_t *one = lifecycle_sandbox(c->sandbox);
    AUTO_FREE char *text = json_dumps(one, JSON_INDENT(2));
    AUTO_BUF struct buf all = BUF_INIT(2 * LOG_BYTES);
    struct err err;
    http_add_header(c->req, STR("deprecation"), STR("true"));
    buf_printf(&all, "%s\n", text ? text : "");
    for (int logs = 0; logs < 2 && is_summary; logs++) {
        struct diagnostics d = {.id = sandbox_info(c->sandbox)->id,
                                .is_logs = logs,
                                .scope = ARRAY_SIZE(diagnostics_scopes) - 1,
                                .text = BUF_INIT(LOG_BYTES)};
        if (diagnostics_read(c, &d, &err) == 0) {
            buf_printf(&all, "\n%s\n", logs ? "logs" : "events");
            buf_append_str(&all,
                           str_sub(buf_str(&d.text), buf_len(&d.text) - MIN(buf_len(&d.text), (size_t)INLINE_MAX / 4)));
        }
        buf_fini(&d.text);
    }
    call_respond(c, 200, "text/plain; charset=utf-8", buf_str(&all));
}

/* What SDKs tell about the client's side: nobody keeps it. */
void diagnostics_telemetry(struct call *c)
{
    call_empty(c, 204);
}

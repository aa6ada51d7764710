/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids. The trace and the span of an action are the first bytes of SHA-256 over its log's id and its seq, so who asks
 * twice gets the same; a client's traceparent, which stands in the action's record, gives the trace and the parent of
 * its span. All events that an action led to belong to its trace.
 */
#include "base/mem.h"
#include "event/json.h"
#include "sandbox/export_internal.h"
#include "sandbox/figures.h"
#include "sandbox/object.h"

#include <openssl/evp.h>

enum { EXPORT_HOPS_LOOKED_AT = 64, EXPORT_ID_MAX = 33, EXPORT_FIGURES_MAX = 1 << 20 };

static json_t *export_attribute(const char *key, struct str value)
{
    return json_pack("{s:s,s:{s:s%}}", "key", key, "value", "stringValue", value.p ? value.p : "", value.n);
}

static void export_nanos(usec_t at, char ret_text[static 32])
{
    (void)snprintf(ret_text, 32, "%llu000", (unsigned long long)at);
}

json_t *export_envelope(json_t *scope, const char *resources, const char *scopes, const char *version)
{
    char host[256] = "";
    (void)gethostname(host, sizeof(host) - 1);
    (void)json_object_set_new(scope, "scope", json_pack("{s:s,s:s}", "name", "cove", "version", version));
    return json_pack("{s:[{s:{s:[o,o,o]},s:[o]}]}", resources, "resource", "attributes",
                     export_attribute("service.name", STR("cove")),
                     export_attribute("service.version", str_of(version)), export_attribute("host.name", str_of(host)),
                     scopes, scope);
}

/* ---- traces ---- */

struct export_action {
    uint64_t seq;
    usec_t time, started; /* started: when what it began was running; 0: not told */
    char kind[64], trace[EXPORT_ID_MAX], span[EXPORT_ID_MAX], parent[EXPORT_ID_MAX]; /* parent "": none */
    bool is_action;
};

static void export_hex(const char *log, uint64_t seq, const char *what, char ret_hex[static EXPORT_ID_MAX])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    AUTO_FREE char *text = mem_printf("%s %llu %s", log, (unsigned long long)seq, what);
    (void)EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL);
    str_hex(digest, 16, ret_hex);
}

static bool export_on_action(const struct event *e, void *ctx)
{
    struct export_action *a = ctx;
    struct str value;
    if (e->seq != a->seq) {
        if (e->cause == a->seq && e->kind == EVENT_EXEC_STARTED)
            a->started = e->time;
        return true;
    }
    a->time = e->time;
    a->is_action = event_kind_is_action(e->kind);
    (void)snprintf(a->kind, sizeof(a->kind), "%.*s", (int)e->kind_name.n, e->kind_name.p);
    if (json_member(e->data, "traceparent", &value) && value.n == EVENT_TRACEPARENT_LEN + 2 &&
        event_is_traceparent(str_n(value.p + 1, EVENT_TRACEPARENT_LEN))) {
        memcpy(a->trace, value.p + 4, 32);
        memcpy(a->parent, value.p + 37, 16);
    }
    return true;
}

static void export_find(struct core *core, const char *log, struct export_action *a, size_t events)
{
    struct err err;
    export_hex(log, a->seq, "trace", a->trace);
    export_hex(log, a->seq, "span", a->span);
    a->span[16] = 0;
    (void)!event_read(core->config.events, log, a->seq, events, export_on_action, a, &err);
}

static json_t *export_span(const struct export_action *a, const char *span, const char *parent, const char *name,
                           usec_t from, usec_t to)
{
    char start[32], end[32];
    export_nanos(from, start);
    export_nanos(MAX(from, to), end);
    return json_pack("{s:s,s:s,s:s,s:i,s:s,s:s,s:o*}", "traceId", a->trace, "spanId", span, "name", name, "kind",
                     parent == a->parent ? 2 : 1, "startTimeUnixNano", start, "endTimeUnixNano", end, "parentSpanId",
                     *parent ? json_string(parent) : NULL);
}

static bool export_is_end(enum event_kind kind)
{
    static const enum event_kind ends[] = {EVENT_EXEC_EXIT,           EVENT_EXEC_FAILED,    EVENT_FILE_DONE,
                                           EVENT_FILE_FAILED,         EVENT_CODE_DONE,      EVENT_SANDBOX_STARTED,
                                           EVENT_SANDBOX_FAILED,      EVENT_SANDBOX_ENDED,  EVENT_SANDBOX_PAUSED,
                                           EVENT_SANDBOX_RESUMED,     EVENT_DIAL_FAILED,    EVENT_SANDBOX_FORKED,
                                           EVENT_SANDBOX_SNAPSHOTTED, EVENT_SANDBOX_REWOUND};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (ends[i] == kind)
            return true;
    return false;
}

static bool export_is_failure(enum event_kind kind, struct str data)
{
    struct str code;
    return kind == EVENT_EXEC_FAILED || kind == EVENT_FILE_FAILED || kind == EVENT_SANDBOX_FAILED ||
           kind == EVENT_DIAL_FAILED || json_member(data, "failed", &code) || json_member(data, "signal", &code) ||
           (json_member(data, "exit_code", &code) && !str_eqc(code, "0"));
}

static void export_trace(struct export_batch *b, const char *log, const struct export_action *a, usec_t end,
                         bool failed)
{
    char hop[EXPORT_ID_MAX];
    json_t *s = export_span(a, a->span, a->parent, a->kind, a->time, end);
    (void)json_object_set_new(s, "attributes", json_pack("[o]", export_attribute("cove.sandbox", str_of(log))));
    (void)json_object_set_new(s, "status", json_pack("{s:i}", "code", failed ? 2 : 1));
    (void)json_array_append_new(b->spans, s);
    const struct {
        const char *name;
        usec_t from, to;
    } hops[] = {{"agent.start", a->time, a->started}, {"agent.run", a->started, end}};
    for (size_t i = 0; i < ARRAY_SIZE(hops) && a->started; i++) {
        export_hex(log, a->seq, hops[i].name, hop);
        hop[16] = 0;
        (void)json_array_append_new(b->spans, export_span(a, hop, a->span, hops[i].name, hops[i].from, hops[i].to));
        b->bytes += 300;
    }
    b->bytes += 400;
}

/* ---- logs ---- */

void export_add(struct export_batch *b, const struct event *e)
{
    char at[32], seq[32], log[EVENT_ID_MAX + 1];
    struct export_action a = {.seq = e->cause && !event_kind_is_action(e->kind) ? e->cause : e->seq};
    bool is_end = export_is_end(e->kind), failed = export_is_failure(e->kind, e->data);
    usec_t time = e->time;
    (void)snprintf(log, sizeof(log), "%.*s", (int)e->sandbox.n, e->sandbox.p);
    (void)snprintf(seq, sizeof(seq), "%llu", (unsigned long long)e->seq);
    export_nanos(e->time, at);
    b->bytes += 1000 + 4 * e->data.n; /* JSON in JSON in JSON: a quote is four bytes */
    json_t *r = json_pack("{s:s,s:s,s:i,s:s,s:s%,s:{s:s%},s:[o,o,o,o,o]}", "timeUnixNano", at, "observedTimeUnixNano",
                          at, "severityNumber", failed ? 13 : 9, "severityText", failed ? "WARN" : "INFO", "eventName",
                          e->kind_name.p, e->kind_name.n, "body", "stringValue", e->data.p, e->data.n, "attributes",
                          export_attribute("cove.sandbox", e->sandbox), export_attribute("cove.seq", str_of(seq)),
                          export_attribute("cove.actor", e->actor), export_attribute("cove.source", e->source),
                          export_attribute("cove.grade", e->grade));
    export_find(b->core, log, &a, is_end ? EXPORT_HOPS_LOOKED_AT : 1);
    (void)json_object_set_new(r, "traceId", json_string(a.trace));
    (void)json_object_set_new(r, "spanId", json_string(a.span));
    (void)json_array_append_new(b->logs, r);
    if (is_end && a.is_action)
        export_trace(b, log, &a, time, failed);
}

/* ---- metrics: those of /metrics, but for the buckets of histograms ---- */

static json_t *export_point(struct str labels, struct str value, const char *at, const char *since)
{
    json_t *point = json_pack("{s:s,s:s,s:f,s:[]}", "timeUnixNano", at, "startTimeUnixNano", since, "asDouble",
                              strtod(value.p, NULL), "attributes");
    struct str one;
    while (labels.n && str_split(&labels, ',', &one)) {
        ssize_t eq = str_find_char(one, '=');
        if (eq <= 0 || one.n < (size_t)eq + 3)
            continue;
        AUTO_FREE char *key = mem_strndup(one.p, (size_t)eq);
        (void)json_array_append_new(json_object_get(point, "attributes"),
                                    export_attribute(key, str_n(one.p + eq + 2, one.n - (size_t)eq - 3)));
    }
    return point;
}

json_t *export_metrics(struct core *core)
{
    AUTO_BUF struct buf b = BUF_INIT(EXPORT_FIGURES_MAX);
    struct metric_text t = {.to = &b};
    json_t *families = json_object(), *list = json_array(), *one;
    char now[32], since[32];
    bool is_counter = false;
    figures_append(core, &t);
    metric_end(&t);
    (void)buf_append_char(&b, '\0');
    export_nanos(clock_real(), now);
    export_nanos(core->opened_at, since);
    struct str rest = buf_str(&b), line;
    while (rest.n && str_split(&rest, '\n', &line)) {
        if (str_starts(line, STR("# TYPE ")))
            is_counter = memmem(line.p, line.n, " gauge", 6) == NULL;
        ssize_t brace = str_find_char(line, '{'), blank = str_find_char(line, ' ');
        if (line.n < 3 || line.p[0] == '#' || blank < 0)
            continue;
        size_t n = (size_t)(brace >= 0 ? brace : blank);
        const char *close = brace >= 0 ? memrchr(line.p, '}', line.n) : NULL;
        struct str labels = close ? str_n(line.p + brace + 1, (size_t)(close - line.p - brace - 1)) : STR_NULL;
        struct str value = close ? str_sub(line, (size_t)(close - line.p) + 2) : str_sub(line, (size_t)blank + 1);
        AUTO_FREE char *family = mem_strndup(line.p, n);
        if (memmem(family, n, "_bucket", 7) || (is_counter && str_eqc(value, "0")))
            continue;
        one = json_object_get(families, family);
        if (!one) {
            one = json_pack("{s:s,s:{s:[]}}", "name", family, is_counter ? "sum" : "gauge", "dataPoints");
            if (is_counter)
                (void)json_object_update_new(json_object_get(one, "sum"),
                                             json_pack("{s:i,s:b}", "aggregationTemporality", 2, "isMonotonic", 1));
            (void)json_object_set_new(families, family, one);
        }
        json_t *kind = json_object_get(one, is_counter ? "sum" : "gauge");
        (void)json_array_append_new(json_object_get(kind, "dataPoints"), export_point(labels, value, now, since));
    }
    JSON_FOREACH_MEMBER (family, its, families)
        (void)json_array_append(list, its);
    json_decref(families);
    return json_pack("{s:o}", "metrics", list);
}

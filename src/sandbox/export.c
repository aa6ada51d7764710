/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/export.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/feed.h"
#include "sandbox/export_internal.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

enum {
    EXPORT_EVENTS = 100,
    EXPORT_BYTES = 170 * 1024, /* of a message to cove-egress, to which one more event is added */
    EXPORT_GATHER_MS = 500,
    EXPORT_METRICS_MS = 60000,
    EXPORT_RETRY_MS = 1000,
    EXPORT_RETRY_MOST_MS = 5 * 60 * 1000,
    EXPORT_POST_MS = 10000,
};

static const char *const signals[EXPORT_SIGNALS] = {"logs", "traces", "metrics"};

struct exporter {
    struct core *core;
    json_t *config;               /* NULL: nothing is exported */
    uint64_t cursor, telling;     /* of the feed: told; once what is under way was */
    char *bodies[EXPORT_SIGNALS]; /* what is to be sent, in this order; NULL: nothing */
    struct egress_call *call;
    unsigned tries;
    struct loop_alarm next, metrics;
    struct store_hook store_hook;
};

static bool export_wants(const struct exporter *x, enum export_signal signal)
{
    const json_t *list = json_object_get(x->config, "signals");
    JSON_FOREACH (one, list)
        if (strcmp(json_string_value(one), signals[signal]) == 0)
            return true;
    return x->config && !list;
}

static void export_look(struct loop_alarm *alarm);

static void export_soon(struct exporter *x, uint64_t ms)
{
    loop_alarm_set(x->core->loop, &x->next, clock_mono() + ms * USEC_PER_MS, export_look);
}

/* ---- sending ---- */

static void export_done(struct exporter *x)
{
    char text[32];
    struct err err;
    x->tries = 0;
    if (x->telling > x->cursor) {
        x->cursor = x->telling;
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)x->cursor);
        if (meta_put(x->core->config.store, "export.cursor", str_of(text), &err) < 0)
            core_unrecorded(x->core, &err);
        else
            keeper_wrote(x->core->keeper);
    }
    export_soon(x, 0);
}

static void export_give_up(struct exporter *x, const char *why)
{
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_STR("webhook", "export"), DATA_U64("tries", x->tries), DATA_STR("message", why));
    action_note_limited(x->core, SERVICE_LOG_ID, NULL, 0, EVENT_WEBHOOK_FAILED, event_data_end(&d));
    for (size_t i = 0; i < EXPORT_SIGNALS; i++)
        mem_free(TAKE_PTR(x->bodies[i]));
    export_done(x);
}

static void export_failed(struct exporter *x, const char *why)
{
    uint64_t ms = MIN((uint64_t)EXPORT_RETRY_MS << x->tries, (uint64_t)EXPORT_RETRY_MOST_MS);
    if (++x->tries >= EXPORT_TRIES)
        export_give_up(x, why);
    else
        export_soon(x, ms);
}

static void export_on_answer(void *ctx, const json_t *answer, const struct err *err)
{
    struct exporter *x = ctx;
    json_int_t status = json_integer_value(json_object_get(answer, "status"));
    char why[64];
    x->call = NULL;
    if (x->core->closing)
        return;
    (void)snprintf(why, sizeof(why), "the collector answers %d", (int)status);
    if (status < 200 || status >= 300) {
        export_failed(x, err ? err->msg : why);
        return;
    }
    for (size_t i = 0; i < EXPORT_SIGNALS; i++)
        if (x->bodies[i]) {
            mem_free(TAKE_PTR(x->bodies[i]));
            break;
        }
    x->tries = 0;
    export_soon(x, 0);
}

static void export_post(struct exporter *x, enum export_signal signal)
{
    AUTO_FREE char *url = mem_printf("%s/v1/%s", json_string_value(json_object_get(x->config, "url")), signals[signal]);
    json_t *headers = json_object_get(x->config, "headers");
    json_t *request = json_pack("{s:s,s:s,s:i,s:s,s:o}", "op", "ask", "url", url, "timeout_ms", EXPORT_POST_MS, "body",
                                x->bodies[signal], "headers", headers ? json_incref(headers) : json_object());
    struct err err;
    if (!request)
        export_give_up(x, "what is to be sent is not UTF-8");
    else if (egress_link_call(x->core->networks->link, request, "asked", export_on_answer, x, &x->call, &err) < 0)
        export_failed(x, err.msg);
    else
        egress_call_wait(x->call, EXPORT_POST_MS + 500);
}

/* ---- what is sent ---- */

static char *export_text(struct exporter *x, json_t *scope, const char *resources, const char *scopes)
{
    json_t *all = export_envelope(scope, resources, scopes, x->core->config.version);
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

/* The next events, as far as one message has room. */
static int export_gather(struct exporter *x, struct err *err)
{
    AUTO(feed_close) struct feed_reader *reader = NULL;
    struct export_batch b = {.core = x->core, .logs = json_array(), .spans = json_array()};
    struct event_gap gap;
    int r = EVENT_NEXT_EVENT;
    if (feed_open(x->core->config.events, &(struct feed_want){.after = x->cursor}, &reader, err) < 0) {
        json_decref(b.logs);
        json_decref(b.spans);
        return -1;
    }
    while (r > 0 && b.bytes < EXPORT_BYTES && json_array_size(b.logs) < EXPORT_EVENTS) {
        struct event e;
        r = feed_next(reader, &e, &gap, err);
        if (r == EVENT_NEXT_EVENT)
            export_add(&b, &e);
    }
    x->telling = feed_after(reader);
    if (json_array_size(b.logs) && export_wants(x, EXPORT_LOGS))
        x->bodies[EXPORT_LOGS] = export_text(x, json_pack("{s:O}", "logRecords", b.logs), "resourceLogs", "scopeLogs");
    if (json_array_size(b.spans) && export_wants(x, EXPORT_TRACES))
        x->bodies[EXPORT_TRACES] = export_text(x, json_pack("{s:O}", "spans", b.spans), "resourceSpans", "scopeSpans");
    json_decref(b.logs);
    json_decref(b.spans);
    return r < 0 ? -1 : 0;
}

static void export_look(struct loop_alarm *alarm)
{
    struct exporter *x = container_of(alarm, struct exporter, next);
    struct err err;
    if (!x->config || x->call || x->core->closing)
        return;
    for (enum export_signal i = 0; i < EXPORT_SIGNALS; i++)
        if (x->bodies[i]) {
            export_post(x, i);
            return;
        }
    if (x->telling > x->cursor)
        export_done(x);
    else if (export_gather(x, &err) < 0)
        export_failed(x, err.msg);
    else if (x->telling > x->cursor)
        export_soon(x, 0);
}

static void export_on_metrics(struct loop_alarm *alarm)
{
    struct exporter *x = container_of(alarm, struct exporter, metrics);
    if (x->config && export_wants(x, EXPORT_METRICS) && !x->bodies[EXPORT_METRICS]) {
        x->bodies[EXPORT_METRICS] = export_text(x, export_metrics(x->core), "resourceMetrics", "scopeMetrics");
        if (!x->call && !x->tries)
            export_soon(x, 0);
    }
    loop_alarm_set(x->core->loop, alarm, clock_mono() + EXPORT_METRICS_MS * USEC_PER_MS, export_on_metrics);
}

static void export_on_committed(void *ctx)
{
    struct exporter *x = ctx;
    if (x->config && !x->call && !x->tries && !x->next.slot && !x->core->closing)
        export_soon(x, EXPORT_GATHER_MS);
}

/* ---- what is asked for ---- */

static int export_check(const json_t *json, struct err *err)
{
    const char *url = json_string_value(json_object_get(json, "url"));
    json_t *list = json_object_get(json, "signals"), *headers = json_object_get(json, "headers");
    bool ok =
        url && strlen(url) < EXPORT_TEXT_MAX && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0);
    for (const char *c = url; ok && *c; c++)
        ok = *c > ' ' && *c < 0x7f && !strchr("@?#", *c);
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT, "url: write where the collector listens: http://127.0.0.1:4318");
    JSON_FOREACH (one, list) {
        size_t k = 0;
        while (k < EXPORT_SIGNALS && !(json_is_string(one) && strcmp(json_string_value(one), signals[k]) == 0))
            k++;
        ok = ok && k < EXPORT_SIGNALS;
    }
    if (!ok || (list && !json_is_array(list)))
        return err_set(err, ERR_INVALID_ARGUMENT, "signals: a list of logs, traces and metrics");
    ok = !headers || (json_is_object(headers) && json_object_size(headers) <= EXPORT_HEADERS_MAX);
    JSON_FOREACH_MEMBER (name, one, headers) {
        const char *value = json_string_value(one);
        ok = ok && value && *name && strlen(name) + strlen(value) < EXPORT_TEXT_MAX &&
             str_is_of(str_of(name), "A-Za-z0-9_-");
        for (const char *c = ok ? value : ""; *c; c++)
            ok = ok && *c >= ' ' && *c < 0x7f;
    }
    return ok ? 0
              : err_set(err, ERR_INVALID_ARGUMENT, "headers: at most %d names with a text each", EXPORT_HEADERS_MAX);
}

const json_t *export_get(struct core *core)
{
    return core->exporter->config;
}

static void export_forget(struct exporter *x)
{
    egress_call_cancel(TAKE_PTR(x->call));
    for (size_t i = 0; i < EXPORT_SIGNALS; i++)
        mem_free(TAKE_PTR(x->bodies[i]));
    x->telling = x->tries = 0;
}

int export_set(struct core *core, const struct actor *actor, const json_t *json, struct err *err)
{
    struct exporter *x = core->exporter;
    AUTO_FREE char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    const char *url = json_string_value(json_object_get(json, "url"));
    const char *old = json_string_value(json_object_get(x->config, "url"));
    struct event_bounds bounds;
    uint64_t seq;
    if (json && export_check(json, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("target", url ? url : ""));
    if (action_on(core, SERVICE_LOG_ID, actor, EVENT_SERVICE_EXPORT, event_data_end(&d), &seq, err) < 0)
        return -1;
    int r = feed_bounds(core->config.events, &bounds, err);
    if (r == 0)
        r = json ? meta_put(core->config.store, "export", str_of(text), err)
                 : meta_delete(core->config.store, "export", err);
    if (action_end(core, actor, seq, EVENT_SERVICE_EXPORT, r < 0 ? r : keeper_commit(core->keeper, err), err) < 0)
        return -1;
    export_forget(x);
    if (!old || !url || strcmp(old, url) != 0)
        x->cursor = bounds.last;
    json_decref(x->config);
    x->config = json ? json_deep_copy(json) : NULL;
    loop_alarm_set(core->loop, &x->metrics, clock_mono(), export_on_metrics);
    export_soon(x, 0);
    return 0;
}

/* ---- the core's ---- */

struct exporter *exporter_new(struct core *core)
{
    struct exporter *x = mem_new(struct exporter);
    x->core = core;
    x->store_hook = (struct store_hook){NULL, export_on_committed, NULL, x, {0}};
    store_hook_add(core->config.store, &x->store_hook);
    return x;
}

int exporter_load(struct core *core, struct err *err)
{
    struct exporter *x = core->exporter;
    AUTO_BUF struct buf text = BUF_INIT(1 << 20), cursor = BUF_INIT(64);
    struct err why;
    int r = meta_get(core->config.store, "export", &text, err);
    if (r <= 0)
        return r;
    x->config = json_loadb(buf_data(&text), buf_len(&text), 0, NULL);
    if (!x->config || export_check(x->config, &why) < 0) {
        log_error("where events are exported to can't be read: nothing is, until it is set anew");
        json_decref(TAKE_PTR(x->config));
        return 0;
    }
    if (meta_get(core->config.store, "export.cursor", &cursor, err) < 0)
        return -1;
    (void)!str_to_u64(buf_str(&cursor), &x->cursor);
    loop_alarm_set(core->loop, &x->metrics, clock_mono() + EXPORT_METRICS_MS * USEC_PER_MS, export_on_metrics);
    export_soon(x, EXPORT_GATHER_MS);
    return 0;
}

void exporter_free(struct exporter *x)
{
    export_forget(x);
    loop_alarm_clear(x->core->loop, &x->next);
    loop_alarm_clear(x->core->loop, &x->metrics);
    store_hook_remove(&x->store_hook);
    json_decref(x->config);
    mem_free(x);
}

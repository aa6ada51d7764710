/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event and a delivery are the same object. Its id is made of the event's hash, so it is the same in the list and in
 * every try of a delivery. The signature is E2B's: base64 (of URLs, without padding) of SHA-256 of the secret and the
 * body, one behind the other.
 */
#include "api/e2b/call.h"
#include "api/e2b/control/sandbox_json.h"
#include "base/mem.h"
#include "sandbox/tenant.h"
#include "sandbox/webhook.h"

#include <openssl/sha.h>

#define LIFECYCLE "sandbox.lifecycle."

enum { EVENTS_DEFAULT = 10, EVENTS_MOST = 100, EVENTS_SKIP_MOST = 1000000 };

/* ---- an event ---- */

static json_t *event_uuid(struct str bytes)
{
    char hex[33] = "";
    str_hex(bytes.p, MIN(bytes.n, (size_t)16), hex);
    return json_sprintf("%.8s-%.4s-4%.3s-a%.3s-%.12s", hex, hex + 8, hex + 13, hex + 17, hex + 20);
}

static json_t *event_metadata(const char *text)
{
    json_t *all = json_loads(*text ? text : "{}", 0, NULL), *value;
    const char *key;
    void *next;
    json_object_foreach_safe(all, next, key, value)
    {
        if (facade_owns_key(str_of(key)))
            (void)json_object_del(all, key);
    }
    return all ? all : json_object();
}

static json_t *event_details(const struct life_row *row, const char *type)
{
    json_t *data AUTO_JSON = json_loads(row->data, 0, NULL), *timeout = json_object_get(data, "timeout_ms");
    bool is_over = strcmp(type, "killed") == 0 || strcmp(type, "paused") == 0;
    json_t *all = json_pack("{s:o}", "sandbox_metadata", event_metadata(row->metadata));
    if (strcmp(row->kind, "sandbox.timeout") == 0 && timeout)
        (void)json_object_set_new(all, "set_timeout",
                                  sandbox_json_time(clock_add_ms(row->time, (uint64_t)json_integer_value(timeout))));
    if (is_over && row->started_at)
        (void)json_object_set_new(all, "execution",
                                  json_pack("{s:o,s:i,s:I,s:I}", "started_at", sandbox_json_time(row->started_at),
                                            "vcpu_count", (int)MAX((row->cpu_milli + 999) / 1000, 1U), "memory_mb",
                                            (json_int_t)(row->memory_bytes >> 20), "execution_time",
                                            (json_int_t)((row->time - MIN(row->time, row->started_at)) / USEC_PER_MS)));
    return all;
}

static void append_event(const struct life_row *row, const char *tenant, struct buf *b)
{
    const char *type = life_type(row);
    json_put_value(b,
                   json_pack("{s:s,s:o,s:s+,s:o,s:o,s:s,s:s,s:s,s:o,s:o}", "version", "v1", "id", event_uuid(row->hash),
                             "type", LIFECYCLE, type, "eventData", event_details(row, type), "sandboxBuildId",
                             call_cstr(row->template_id), "sandboxExecutionId", row->sandbox, "sandboxId", row->sandbox,
                             "sandboxTeamId", tenant ? tenant : TENANT_NAME_DEFAULT, "sandboxTemplateId",
                             call_cstr(row->template_id), "timestamp", sandbox_json_time(row->time)));
}

static void events_sign(json_t *headers, const char *webhook, const char *delivery, struct str secret, struct str body)
{
    AUTO_BUF struct buf text = BUF_INIT(secret.n + body.n + 1), code = BUF_INIT(64);
    unsigned char hash[SHA256_DIGEST_LENGTH];
    buf_append_str(&text, secret);
    buf_append_str(&text, body);
    (void)SHA256((const unsigned char *)buf_data(&text), buf_len(&text), hash);
    buf_append_base64(&code, str_n((const char *)hash, sizeof(hash)));
    for (char *c = buf_data(&code), *end = c + buf_len(&code); c < end; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    (void)json_object_set_new(headers, "e2b-signature", json_stringn(buf_data(&code), buf_len(&code) - 1));
    (void)json_object_set_new(headers, "e2b-signature-version", json_string("v1"));
    (void)json_object_set_new(headers, "e2b-webhook-id", json_string(webhook));
    (void)json_object_set_new(headers, "e2b-delivery-id", json_string(delivery));
}

const struct core_webhooks e2b_webhooks = {append_event, events_sign};

/* ---- the list ---- */

struct events_listing {
    struct core *core;
    struct life_want want; /* what is not looked at yet */
    struct buf b;
    uint64_t skip, limit;
};

static bool events_list_one(void *ctx, const struct life_row *row)
{
    struct events_listing *l = ctx;
    if (!life_type(row))
        return true;
    if (l->skip) {
        l->skip--;
        return true;
    }
    append_event(row, tenant_name(l->core, row->tenant), &l->b);
    return --l->limit > 0;
}

static void events_list_some(struct call *c)
{
    struct events_listing *l = c->state;
    usec_t until = clock_mono() + SLICE_USEC;
    int r;
    do
        r = life_each(l->core, &c->actor.who, &l->want, events_list_one, l, &c->err);
    while (r > 0 && l->limit && clock_mono() < until);
    if (r > 0 && l->limit) {
        call_later(c, events_list_some);
    } else if (call_ok(c, r)) {
        buf_append_char(&l->b, ']');
        call_json_buf(c, 200, &l->b);
    }
}

static void events_list_gone(struct call *c)
{
    buf_fini(&((struct events_listing *)c->state)->b);
}

void events_list(struct call *c)
{
    struct events_listing *l = arena_alloc(http_arena(c->req), sizeof(*l));
    *l = (struct events_listing){.core = call_core(c),
                                 .want = {.sandbox = c->args[0].p, .to = UINT64_MAX},
                                 .b = BUF_INIT(REPLY_MAX),
                                 .limit = EVENTS_DEFAULT};
    struct str ignored;
    bool ascending;
    if (call_query(c, "limit", &ignored) && call_query_u64(c, "limit", &l->limit) < 0)
        return;
    if (call_query_u64(c, "offset", &l->skip) < 0 || call_query_bool(c, "orderAsc", &ascending) < 0)
        return;
    if (l->limit < 1 || l->limit > EVENTS_MOST || l->skip > EVENTS_SKIP_MOST) {
        call_fail(c, 400, "limit must be from 1 to %d, offset up to %d", EVENTS_MOST, EVENTS_SKIP_MOST);
        return;
    }
    if (l->want.sandbox && (!id_is_sandbox(c->args[0]) || !access_has_log(c, l->want.sandbox))) {
        call_fail(c, 404, "Sandbox \"%.*s\" doesn't exist or you don't have access to it", STR_ARG_MAX(c->args[0], 64));
        return;
    }
    l->want.is_back = !ascending;
    c->state = l;
    c->cleanup = events_list_gone;
    buf_append_char(&l->b, '[');
    events_list_some(c);
}

/* ---- webhooks ---- */

static json_t *webhook_json(struct core *core, const struct webhook *w)
{
    const char *team = tenant_name(core, w->tenant) ? tenant_name(core, w->tenant) : TENANT_NAME_DEFAULT;
    json_t *events = json_array();
    JSON_FOREACH (one, json_object_get(w->config, "types"))
        (void)json_array_append_new(events, json_sprintf(LIFECYCLE "%s", json_string_value(one)));
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:b,s:o,s:o}", "id", w->id, "teamID", team, "teamId", team, "name",
                     call_text(json_str(json_object_get(w->config, "name"))), "url",
                     call_text(json_str(json_object_get(w->config, "url"))), "enabled",
                     json_is_true(json_object_get(w->config, "enabled")), "createdAt",
                     sandbox_json_time((usec_t)json_integer_value(json_object_get(w->config, "created_at"))), "events",
                     events);
}

static void answer_webhook(struct call *c, int status, const struct webhook *w)
{
    call_value(c, status, webhook_json(call_core(c), w));
}

struct webhook_list {
    struct core *core;
    json_t *all;
};

static void list_webhook(void *ctx, const struct webhook *w)
{
    const struct webhook_list *l = ctx;
    (void)json_array_append_new(l->all, webhook_json(l->core, w));
}

void events_webhooks(struct call *c)
{
    struct webhook_list l = {call_core(c), json_array()};
    webhook_each(l.core, &c->actor.who, list_webhook, &l);
    call_value(c, 200, l.all);
}

/* E2B's members as the core's; what is absent stays so. NULL: answered. */
static json_t *webhook_config(struct call *c)
{
    static const char *const members[][2] = {{"name", "name"}, {"url", "url"}, {"signatureSecret", "secret"}};
    json_t *config = json_object(), *enabled = json_object_get(c->body, "enabled"), *one;
    const struct str *events = NULL;
    size_t n = 0, i;
    struct err err;
    for (i = 0; i < ARRAY_SIZE(members); i++)
        if ((one = json_object_get(c->body, members[i][0])))
            (void)json_object_set(config, members[i][1], one);
    if (enabled)
        (void)json_object_set(config, "enabled", enabled);
    if (json_get_strs(c->body, "events", http_arena(c->req), &events, &n, &err) < 0 ||
        (enabled && !json_is_boolean(enabled))) {
        json_decref(config);
        call_fail(c, 400, "events must be a list of texts, enabled true or false");
        return NULL;
    }
    if (json_object_get(c->body, "events"))
        (void)json_object_set_new(config, "types", json_array());
    for (i = 0; i < n; i++) {
        struct str type = str_starts(events[i], STR(LIFECYCLE)) ? str_sub(events[i], strlen(LIFECYCLE)) : STR("");
        (void)json_array_append_new(json_object_get(config, "types"), json_stringn(type.n ? type.p : "", type.n));
    }
    return config;
}

void events_webhook_create(struct call *c)
{
    const struct webhook *w;
    json_t *config AUTO_JSON = webhook_config(c);
    if (!config)
        return;
    if (!json_object_get(config, "enabled"))
        (void)json_object_set_new(config, "enabled", json_true());
    if (call_ok(c, webhook_create(call_core(c), &c->actor, config, &w, &c->err)))
        answer_webhook(c, 201, w);
}

void events_webhook_get(struct call *c)
{
    const struct webhook *w = webhook_find(call_core(c), &c->actor.who, c->args[0]);
    if (w)
        answer_webhook(c, 200, w);
    else
        call_fail(c, 404, "Webhook doesn't exist or you don't have access to it");
}

void events_webhook_set(struct call *c)
{
    const struct webhook *w;
    json_t *config AUTO_JSON = webhook_config(c);
    if (!config)
        return;
    if (call_ok(c, webhook_set(call_core(c), &c->actor, c->args[0], config, &w, &c->err)))
        answer_webhook(c, 200, w);
}

void events_webhook_remove(struct call *c)
{
    if (call_ok(c, webhook_remove(call_core(c), &c->actor, c->args[0], &c->err)))
        call_json(c, 200, STR("{}"));
}

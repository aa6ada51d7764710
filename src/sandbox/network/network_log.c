/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cove-egress saw, as events. A sandbox can cause any number of them, so all are bounded: NETWORK_FLOWS_PER_SEC
 * flows a second are logged one by one (net.open, and its net.close whenever that comes), the others are counted and
 * told together; of the other kinds what is too much is counted by the log itself (log.suppressed). And since a sandbox
 * may go on for as long as it lives, the more was told of it, the less is: after EVENT_TOLD_IN_FULL events a tenth of
 * that, after EVENT_TOLD_CLOSELY a tenth in a minute.
 */
#include "base/mem.h"
#include "policy/policy.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/record/record.h"

enum { REQUESTS_PER_SEC = 200, DENIALS_PER_SEC = 100, MISUSES_PER_SEC = 20 };

struct told {
    json_t *message;
    bool is_wrong;
};

static bool has(const struct told *t, const char *key)
{
    return json_object_get(t->message, key) != NULL;
}

/* Each copies a member into the event; of another type than it must be, the message makes no sense. */
static void text(struct told *t, struct event_data *d, const char *key, bool is_optional)
{
    json_t *v = json_object_get(t->message, key);
    if (json_is_string(v))
        event_data_str(d, key, json_str(v));
    else
        t->is_wrong |= v || !is_optional;
}

static json_int_t network_log_number(struct told *t, const char *key, bool is_optional)
{
    json_t *v = json_object_get(t->message, key);
    t->is_wrong |= v ? !json_is_integer(v) : !is_optional;
    return json_integer_value(v);
}

static uint64_t network_log_count(struct told *t, const char *key)
{
    json_int_t n = network_log_number(t, key, false);
    t->is_wrong |= n < 0;
    return (uint64_t)n;
}

static void put_count(struct told *t, struct event_data *d, const char *key)
{
    event_data_u64(d, key, network_log_count(t, key));
}

static void put_number(struct told *t, struct event_data *d, const char *key, bool is_optional)
{
    if (has(t, key) || !is_optional)
        event_data_i64(d, key, network_log_number(t, key, is_optional));
}

/* Returns its seq, 0 when it is not in the log. per_sec 0: without a limit. */
static uint64_t append(struct network *n, enum event_kind kind, uint64_t cause, uint32_t per_sec, struct event_data *d)
{
    const struct event_draft draft = {.sandbox = n->sb->info.id,
                                      .kind = kind,
                                      .source = EVENT_HOST,
                                      .grade = EVENT_OBSERVED_HOST,
                                      .cause = cause,
                                      .data = event_data_end(d)};
    const struct event_limit limit = event_limit_after(n->n_told, per_sec);
    return record_observed(n->sb, &draft, per_sec ? &limit : NULL, &n->n_told);
}

/* ---- flows ---- */

static void tell_sums(struct network *n)
{
    struct flow_sums s = n->sums;
    n->sums = (struct flow_sums){0};
    loop_alarm_clear(n->sb->core->loop, &n->sums_alarm);
    if (!s.opened && !s.closed)
        return;
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_U64("opened", s.opened), DATA_U64("closed", s.closed), DATA_U64("sent", s.sent),
                   DATA_U64("received", s.received), DATA_U64("us", clock_mono() - s.since));
    (void)append(n, EVENT_NET_FLOWS, 0, 0, &d);
}

static void on_sums_alarm(struct loop_alarm *alarm)
{
    tell_sums(container_of(alarm, struct network, sums_alarm));
}

static struct flow_sums *sums_of(struct network *n)
{
    if (!n->sums_alarm.slot) {
        n->sums.since = clock_mono();
        loop_alarm_set(n->sb->core->loop, &n->sums_alarm, n->sums.since + event_limit_after(n->n_told, 1).window,
                       on_sums_alarm);
    }
    return &n->sums;
}

static bool may_log_flow(struct network *n)
{
    const struct event_limit limit = event_limit_after(n->n_told, NETWORK_FLOWS_PER_SEC);
    usec_t now = clock_mono();
    if (now - n->period >= limit.window) {
        n->period = now;
        n->opened_in_period = 0;
    }
    if (n->opened_in_period >= limit.burst || map_count(&n->logged) >= NETWORK_FLOWS_MAX)
        return false;
    n->opened_in_period++;
    return true;
}

static void describe_flow(struct told *t, struct event_data *d)
{
    put_count(t, d, "flow");
    text(t, d, "proto", false);
    text(t, d, "name", true);
    text(t, d, "address", false);
    put_count(t, d, "port");
    put_number(t, d, "rule", false);
    t->is_wrong |= has(t, "intercepted") && !json_is_boolean(json_object_get(t->message, "intercepted"));
    EVENT_DATA_PUT(d, DATA_FLAG("intercepted", json_is_true(json_object_get(t->message, "intercepted"))));
}

static void network_log_on_open(struct network *n, struct told *t)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t flow = network_log_count(t, "flow");
    describe_flow(t, &d);
    if (t->is_wrong)
        return;
    n->sb->core->figures.egress[FIGURES_ALLOWED]++;
    /* Of one with that number the end was lost on the way: cove-egress drops what nobody reads, and numbers anew after
     * a pause without memory. */
    (void)map_del_u64(&n->logged, flow);
    if (!may_log_flow(n)) {
        sums_of(n)->opened++;
        return;
    }
    uint64_t seq = append(n, EVENT_NET_OPEN, 0, 0, &d);
    if (seq)
        (void)map_put_u64(&n->logged, flow, (void *)(uintptr_t)seq);
}

static void on_close(struct network *n, struct told *t)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t flow = network_log_count(t, "flow"), sent = network_log_count(t, "sent"),
             received = network_log_count(t, "received");
    describe_flow(t, &d);
    EVENT_DATA_PUT(&d, DATA_U64("sent", sent), DATA_U64("received", received));
    put_count(t, &d, "us");
    text(t, &d, "error", true);
    if (t->is_wrong)
        return;
    n->sb->core->figures.egress_sent += sent;
    n->sb->core->figures.egress_received += received;
    uint64_t opened = (uint64_t)(uintptr_t)map_del_u64(&n->logged, flow);
    if (opened) {
        (void)append(n, EVENT_NET_CLOSE, opened, 0, &d);
        return;
    }
    struct flow_sums *s = sums_of(n);
    s->closed++;
    s->sent += sent;
    s->received += received;
}

static void on_flow(struct network *n, struct told *t)
{
    const char *what = json_string_value(json_object_get(t->message, "what"));
    if (what && strcmp(what, "open") == 0)
        network_log_on_open(n, t);
    else if (what && strcmp(what, "close") == 0)
        on_close(n, t);
    else
        t->is_wrong = true;
}

/* ---- the others ---- */

static void on_request(struct network *n, struct told *t)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    json_t *injected = json_object_get(t->message, "injected");
    AUTO_BUF struct buf names = BUF_INIT(EVENT_DATA_MAX);
    put_count(t, &d, "flow");
    text(t, &d, "method", false);
    text(t, &d, "url", false);
    put_number(t, &d, "status", false);
    put_number(t, &d, "rule", false);
    t->is_wrong |= injected && !json_is_array(injected);
    JSON_FOREACH_AT (i, name, injected) {
        t->is_wrong |= !json_is_string(name);
        (void)buf_append_char(&names, i ? ',' : '[');
        (void)buf_append_json_string(&names, json_str(name));
    }
    (void)buf_append_char(&names, ']');
    if (json_array_size(injected) && !buf_error(&names))
        event_data_json(&d, "injected", buf_str(&names));
    if (t->is_wrong)
        return;
    uint64_t opened = (uint64_t)(uintptr_t)map_get_u64(&n->logged, network_log_count(t, "flow"));
    (void)append(n, EVENT_NET_REQUEST, opened, REQUESTS_PER_SEC, &d);
}

/* The last member of an event that stands for so many. */
static void put_alike(struct network *n, struct told *t, struct event_data *d, enum figures_verdict verdict)
{
    uint64_t alike = network_log_count(t, "count");
    event_data_u64(d, "count", alike);
    n->sb->core->figures.egress[verdict] += t->is_wrong ? 0 : alike;
}

static void on_denied(struct network *n, struct told *t)
{
    static const char *const texts[] = {"name", "address", "method", "path"};
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    text(t, &d, "proto", false);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        text(t, &d, texts[i], true);
    put_number(t, &d, "port", true);
    put_number(t, &d, "rule", false);
    text(t, &d, "reason", false);
    text(t, &d, "suggestion", true);
    put_alike(n, t, &d, FIGURES_DENIED);
    if (t->is_wrong)
        return;
    bool is_told = append(n, EVENT_NET_DENIED, 0, DENIALS_PER_SEC, &d);
    network_ask(n, json_string_value(json_object_get(t->message, "suggestion")));
    if (!is_told || !n->on_denied)
        return;
    const char *name = json_string_value(json_object_get(t->message, "name"));
    const char *address = json_string_value(json_object_get(t->message, "address"));
    json_int_t port = json_integer_value(json_object_get(t->message, "port"));
    AUTO_FREE char *target = mem_printf(port ? "%s:%lld" : "%s",
                                        name      ? name
                                        : address ? address
                                                  : "?",
                                        (long long)port);
    bool is_closed = json_integer_value(json_object_get(t->message, "rule")) == POLICY_RULE_BUILTIN;
    n->on_denied(n->denied_ctx, target, json_string_value(json_object_get(t->message, "reason")),
                 is_closed && name ? address : NULL);
}

void network_watch_denied(struct sandbox *sb, network_denied_fn fn, void *ctx)
{
    sb->network->on_denied = fn;
    sb->network->denied_ctx = ctx;
}

static void on_unresolved(struct network *n, struct told *t)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    text(t, &d, "name", false);
    text(t, &d, "reason", false);
    put_alike(n, t, &d, FIGURES_UNRESOLVED);
    if (!t->is_wrong)
        (void)append(n, EVENT_NET_UNRESOLVED, 0, DENIALS_PER_SEC, &d);
}

static void on_misuse(struct network *n, struct told *t)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    const char *secret = json_string_value(json_object_get(t->message, "secret"));
    const char *own = secret && n->sb->info.tenant ? strchr(secret, '.') : NULL; /* policy_of_tenant() */
    t->is_wrong |= !secret;
    if (secret)
        event_data_str(&d, "secret", str_of(own ? own + 1 : secret));
    text(t, &d, "name", false);
    put_count(t, &d, "port");
    n->sb->core->figures.egress[FIGURES_MISUSE] += !t->is_wrong;
    if (!t->is_wrong)
        (void)append(n, EVENT_NET_MISUSE, 0, MISUSES_PER_SEC, &d);
}

bool network_log(struct networks *all, const char *op, json_t *message)
{
    static const struct {
        const char *op;
        void (*fn)(struct network *n, struct told *t);
    } kinds[] = {{"flow", on_flow},
                 {"request", on_request},
                 {"denied", on_denied},
                 {"unresolved", on_unresolved},
                 {"misuse", on_misuse}};
    const char *id = json_string_value(json_object_get(message, "id"));
    if (!id || !id_is_sandbox(str_of(id)))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strcmp(kinds[i].op, op) != 0)
            continue;
        struct sandbox *sb = map_get(&all->core->by_id, str_of(id));
        struct told t = {.message = message};
        if (sb && !all->core->closing && sb->info.state != SANDBOX_ENDED && sb->info.state != SANDBOX_FAILED)
            kinds[i].fn(sb->network, &t);
        return !t.is_wrong;
    }
    return false;
}

void network_log_stop(struct network *n)
{
    tell_sums(n);
    map_fini(&n->logged);
}

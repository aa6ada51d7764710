/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/webhook.h"
#include "base/mem.h"
#include "event/feed.h"
#include "policy/policy.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/quota.h"
#include "sandbox/record/record.h"
#include "sandbox/tenant.h"

enum {
    LIFE_PART = 1000, /* cursors */
    SAVED_EVERY = 1000,
    WEBHOOK_RETRY_MS = 1000,
    RETRY_MOST_MS = 10 * 60 * 1000,
    POSTED_MS = 15000 /* somebody outside answers */
};

struct hook {
    struct webhook w;
    struct webhooks *all;
    uint64_t cursor, saved;   /* saved: in the store */
    struct egress_call *call; /* under way; NULL: none */
    uint64_t telling;         /* its cursor */
    char what[96];            /* and what it is, for the record */
    unsigned tries;
    struct loop_alarm retry;
    struct list node;
};

struct webhooks {
    struct core *core;
    struct list hooks; /* by age */
    size_t n;
    uint64_t lives; /* events of lives that there were when it was looked last */
    struct loop_job job;
    struct store_hook store_hook;
};

/* ---- lives ---- */

static const struct {
    enum event_kind kind;
    const char *type;
} types[] = {{EVENT_SANDBOX_CREATE, "created"},   {EVENT_SANDBOX_FAILED, "killed"},
             {EVENT_SANDBOX_ENDED, "killed"},     {EVENT_SANDBOX_TIMEOUT, "updated"},
             {EVENT_SANDBOX_METADATA, "updated"}, {EVENT_SANDBOX_PAUSED, "paused"},
             {EVENT_SANDBOX_RESUMED, "resumed"},  {EVENT_SANDBOX_SNAPSHOTTED, "checkpointed"}};

const char *life_type(const struct life_row *row)
{
    enum event_kind kind = event_kind_parse(str_of(row->kind));
    bool is_outcome =
        kind == EVENT_SANDBOX_PAUSED || kind == EVENT_SANDBOX_RESUMED || kind == EVENT_SANDBOX_SNAPSHOTTED;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i].kind == kind)
            return is_outcome && strstr(row->data, "\"failed\":") ? NULL : types[i].type;
    return NULL;
}

static bool life_type_is(struct str name)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (str_eqc(name, types[i].type))
            return true;
    return false;
}

int life_each(struct core *core, const struct principal *who, struct life_want *want, life_rows_fn fn, void *ctx,
              struct err *err)
{
    struct event_bounds bounds;
    if (feed_bounds(core->config.events, &bounds, err) < 0)
        return -1;
    want->tenant = who->view;
    want->to = MIN(want->to, bounds.last);
    want->after = MIN(MAX(want->after, bounds.first - (bounds.first > 0)), want->to);
    struct life_want part = *want;
    if (want->is_back)
        want->to = part.after = part.to - MIN(part.to - part.after, (uint64_t)LIFE_PART);
    else
        want->after = part.to = part.after + MIN(part.to - part.after, (uint64_t)LIFE_PART);
    int r = life_rows_each(core->config.store, &part, fn, ctx, err);
    return r < 0 ? r : want->after < want->to;
}

/* ---- deliveries ---- */

static void hook_look(struct hook *h);

static const char *hook_text(const struct hook *h, const char *member)
{
    return json_string_value(json_object_get(h->w.config, member));
}

static void hook_save(struct hook *h)
{
    struct core *core = h->all->core;
    struct err err;
    h->saved = h->cursor;
    if (webhook_rows_put_cursor(core->config.store, h->w.id, h->cursor, &err) < 0)
        core_unrecorded(core, &err);
    else
        keeper_wrote(core->keeper);
}

static void hook_done(struct hook *h)
{
    h->cursor = h->telling;
    h->tries = 0;
    hook_save(h);
    loop_later(h->all->core->loop, &h->all->job);
}

static void hook_give_up(struct hook *h, const char *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("webhook", h->w.id), DATA_STR("what", h->what),
                                                     DATA_U64("tries", h->tries), DATA_STR("message", why));
    action_note_limited(h->all->core, SERVICE_LOG_ID, NULL, 0, EVENT_WEBHOOK_FAILED, event_data_end(&d));
    hook_done(h);
}

static void webhook_on_retry(struct loop_alarm *alarm)
{
    hook_look(container_of(alarm, struct hook, retry));
}

static void hook_failed(struct hook *h, const char *why)
{
    uint64_t ms = MIN((uint64_t)WEBHOOK_RETRY_MS << h->tries, (uint64_t)RETRY_MOST_MS);
    if (++h->tries >= WEBHOOK_TRIES)
        hook_give_up(h, why);
    else
        loop_alarm_set(h->all->core->loop, &h->retry, clock_mono() + ms * USEC_PER_MS, webhook_on_retry);
}

static void on_posted(void *ctx, const json_t *answer, const struct err *err)
{
    struct hook *h = ctx;
    json_int_t status = answer ? json_integer_value(json_object_get(answer, "status")) : 0;
    char why[64];
    h->call = NULL;
    if (h->all->core->closing)
        return;
    (void)snprintf(why, sizeof(why), "the answer's status is %d", (int)status);
    if (status >= 200 && status < 300)
        hook_done(h);
    else
        hook_failed(h, err ? err->msg : why);
}

static json_t *hook_request(const struct hook *h, const struct life_row *row)
{
    const struct core *core = h->all->core;
    const struct core_webhooks *words = core->config.webhooks;
    AUTO_BUF struct buf body = BUF_INIT(EVENT_DATA_MAX * 4);
    char delivery[ID_UUID_LEN + 1];
    json_t *headers = json_pack("{s:s}", "content-type", "application/json");
    json_t *policy = core->config.webhook_policy;
    id_uuid(delivery);
    words->write(row, tenant_name(h->all->core, h->w.tenant), &body);
    words->sign(headers, h->w.id, delivery, str_of(hook_text(h, "secret")), buf_str(&body));
    return json_pack("{s:s,s:I,s:o,s:s,s:o,s:s%}", "op", "post", "tenant", (json_int_t)h->w.tenant, "policy",
                     policy ? json_incref(policy) : json_pack("{s:s}", "default", "allow"), "url", hook_text(h, "url"),
                     "headers", headers, "body", buf_data(&body), buf_len(&body));
}

struct hook_looking {
    struct hook *hook;
    json_t *request;
};

static bool hook_wants(const struct hook *h, const char *type)
{
    JSON_FOREACH (one, json_object_get(h->w.config, "types"))
        if (type && strcmp(json_string_value(one), type) == 0)
            return true;
    return false;
}

static bool hook_on_life(void *ctx, const struct life_row *row)
{
    struct hook_looking *l = ctx;
    struct hook *h = l->hook;
    const char *type = life_type(row);
    if (hook_wants(h, type)) {
        h->telling = row->cursor;
        (void)snprintf(h->what, sizeof(h->what), "%s %s", row->sandbox, type);
        l->request = hook_request(h, row);
        return false;
    }
    return true;
}

/* The next event that it wants is on its way, unless it waits. */
static void hook_look(struct hook *h)
{
    struct core *core = h->all->core;
    struct hook_looking l = {.hook = h};
    struct life_want want = {.after = h->cursor, .to = UINT64_MAX};
    const struct principal who = {.view = h->w.tenant};
    struct err err;
    int r;
    if (!core->config.webhooks || h->call || h->retry.slot || !json_is_true(json_object_get(h->w.config, "enabled")))
        return;
    r = life_each(core, &who, &want, hook_on_life, &l, &err);
    if (r < 0 || (l.request && egress_link_call(network_link_of(core->networks), l.request, "posted", on_posted, h,
                                                &h->call, &err) < 0)) {
        hook_failed(h, err.msg);
        return;
    }
    if (l.request) {
        egress_call_wait(h->call, POSTED_MS);
        return;
    }
    h->cursor = want.after;
    if (h->cursor >= h->saved + SAVED_EVERY)
        hook_save(h);
    if (r > 0)
        loop_later(core->loop, &h->all->job);
}

static void hook_free(struct hook *h)
{
    egress_call_cancel(h->call);
    loop_alarm_clear(h->all->core->loop, &h->retry);
    list_remove(&h->node);
    h->all->n--;
    json_decref(h->w.config);
    mem_free(h);
}

static void webhooks_on_job(struct loop_job *job)
{
    struct webhooks *all = container_of(job, struct webhooks, job);
    struct err ignored;
    LIST_FOREACH (struct hook, h, &all->hooks, node) {
        if (tenant_name(all->core, h->w.tenant)) {
            hook_look(h);
        } else if (webhook_rows_delete(all->core->config.store, h->w.id, &ignored) == 0) { /* its tenant is gone */
            keeper_wrote(all->core->keeper);
            hook_free(h);
        }
    }
}

/* Comes for every batch: most have nothing of a life. */
static void webhooks_on_committed(void *ctx)
{
    struct webhooks *all = ctx;
    const uint64_t *counts = event_counts(all->core->config.events);
    uint64_t lives = 0;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        lives += counts[types[i].kind];
    if (lives != all->lives && all->n && !all->core->closing)
        loop_later(all->core->loop, &all->job);
    all->lives = lives;
}

/* ---- the table ---- */

static int hook_check(const json_t *config, struct err *err)
{
    static const char *const texts[] = {"name", "url", "secret"};
    const char *url = json_string_value(json_object_get(config, "url"));
    json_t *list = json_object_get(config, "types");
    size_t i;
    for (i = 0; i < ARRAY_SIZE(texts); i++) {
        json_t *v = json_object_get(config, texts[i]);
        size_t n = json_string_length(v);
        if (!json_is_string(v) || !n || n > (i == 1 ? WEBHOOK_URL_MAX : WEBHOOK_TEXT_MAX))
            return err_set(err, ERR_INVALID_ARGUMENT, "a webhook needs a %s, up to %d bytes", texts[i],
                           i == 1 ? WEBHOOK_URL_MAX : WEBHOOK_TEXT_MAX);
    }
    bool ok = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    for (const char *c = url; *c; c++)
        ok = ok && *c > ' ' && *c < 0x7f && *c != '@';
    if (!ok)
        return err_set(err, ERR_INVALID_ARGUMENT, "a webhook's URL begins with http:// or https://, without a user");
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > ARRAY_SIZE(types))
        return err_set(err, ERR_INVALID_ARGUMENT, "a webhook needs a list of events");
    JSON_FOREACH (one, list)
        if (!json_is_string(one) || !life_type_is(str_of(json_string_value(one))))
            return err_set(err, ERR_INVALID_ARGUMENT, "unknown event");
    return 0;
}

static int hook_check_address(const json_t *rules, const struct netaddr *addr, bool is_secure, struct err *err)
{
    AUTO_JSON json_t *all = json_pack("{s:s}", "default", "allow");
    const struct policy_query query = {.addr = *addr};
    struct policy_answer answer;
    struct policy *policy = NULL;
    char text[NETADDR_TEXT_MAX];
    if (is_secure)
        return err_set(err, ERR_INVALID_ARGUMENT, "a webhook's URL with https:// needs the name of a host");
    if (policy_parse(rules ? rules : all, &policy, err) < 0)
        return -1;
    policy_judge(policy, &query, &answer);
    policy_unref(policy);
    netaddr_print(addr, text);
    return answer.verdict == POLICY_ALLOW
               ? 0
               : err_set(err, ERR_INVALID_ARGUMENT,
                         "%s: a webhook reaches an address that is not public only if the configuration's "
                         "webhooks.allow has %s",
                         answer.reason, text);
}

/* What can be known without resolving a name; cove-egress judges each delivery, whatever is found here. */
static int hook_check_target(const struct core *core, const json_t *config, struct err *err)
{
    const char *url = json_string_value(json_object_get(config, "url"));
    struct str host = str_of(strstr(url, "://") + 3);
    struct netaddr addr;
    char name[HOSTNAME_MAX + 1];
    uint16_t port;
    host.n = strcspn(host.p, "/?#");
    const bool is_host = str_split_host(host, &host, &port) == 0;
    if (is_host && netaddr_parse(host, &addr))
        return hook_check_address(core->config.webhook_policy, &addr, strncmp(url, "https:", 6) == 0, err);
    if (!is_host || !hostname_normalise(host, name))
        return err_set(err, ERR_INVALID_ARGUMENT, "a webhook's URL needs a host's name or address, not '%.*s'",
                       STR_ARG_MAX(host, 80));
    if (strcmp(name, "localhost") == 0 || str_ends(str_of(name), STR(".localhost")))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "%.80s is not resolved for webhooks: write 127.0.0.1, which the configuration's webhooks.allow "
                       "must have",
                       name);
    return 0;
}

static int hook_store(const struct hook *h, struct err *err)
{
    AUTO_FREE char *config = json_dumps(h->w.config, JSON_COMPACT);
    const struct store_webhook row = {.id = h->w.id, .config = config, .tenant = h->w.tenant, .cursor = h->cursor};
    if (webhook_rows_put(h->all->core->config.store, &row, err) < 0)
        return -1;
    return keeper_commit(h->all->core->keeper, err);
}

static struct hook *hook_new(struct webhooks *all, const char *id, uint64_t tenant, json_t *config, uint64_t cursor)
{
    struct hook *h = mem_new(struct hook);
    h->all = all;
    (void)snprintf(h->w.id, sizeof(h->w.id), "%s", id);
    h->w.tenant = tenant;
    h->w.config = config;
    h->cursor = h->saved = cursor;
    list_init(&h->node);
    list_append(&all->hooks, &h->node);
    all->n++;
    return h;
}

/* Of the URL only where it leads: people put keys behind that. */
static void hook_describe(const struct core *core, const json_t *config, uint64_t tenant, struct event_data *d)
{
    struct str url = str_of(json_string_value(json_object_get(config, "url")));
    url.n = strcspn(url.p, ":") + 3;
    url.n += strcspn(url.p + url.n, "/?#");
    EVENT_DATA_PUT(d, DATA_STR("name", json_string_value(json_object_get(config, "name"))), DATA_STR("target", url),
                   DATA_BOOL("enabled", json_is_true(json_object_get(config, "enabled"))),
                   DATA_STR("tenant", tenant_name((struct core *)core, tenant)));
}

static int hook_act(struct core *core, const struct actor *actor, enum event_kind kind, const json_t *config,
                    uint64_t tenant, uint64_t *ret_seq, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    hook_describe(core, config, tenant, &d);
    return action_on(core, SERVICE_LOG_ID, actor, kind, event_data_end(&d), ret_seq, err);
}

int webhook_create(struct core *core, const struct actor *actor, const json_t *config,
                   const struct webhook **ret_webhook, struct err *err)
{
    struct webhooks *all = core->webhooks;
    uint64_t tenant = view_home(actor->who.tenant), seq;
    struct event_bounds bounds;
    char id[WEBHOOK_ID_LEN + 1] = "wh-";
    size_t n = 0;
    LIST_FOREACH (struct hook, h, &all->hooks, node)
        n += h->w.tenant == tenant;
    if (hook_check(config, err) < 0 || hook_check_target(core, config, err) < 0)
        return -1;
    if (n >= WEBHOOKS_OF_ONE || !quota_has_room(core, WEBHOOKS_MAX, all->n, n))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %zu webhooks, and %d is the limit", n, WEBHOOKS_OF_ONE);
    if (hook_act(core, actor, EVENT_WEBHOOK_CREATE, config, tenant, &seq, err) < 0)
        return -1;
    if (action_end(core, actor, seq, EVENT_WEBHOOK_CREATE, feed_bounds(core->config.events, &bounds, err), err) < 0)
        return -1;
    id_token(id + 3, WEBHOOK_ID_LEN - 3);
    struct hook *h = hook_new(all, id, tenant, json_deep_copy(config), bounds.last);
    (void)json_object_set_new(h->w.config, "created_at", json_integer((json_int_t)clock_real()));
    if (action_end(core, actor, seq, EVENT_WEBHOOK_CREATE, hook_store(h, err), err) < 0) {
        hook_free(h);
        return -1;
    }
    *ret_webhook = &h->w;
    return 0;
}

static struct hook *hook_find(struct core *core, const struct principal *who, struct str id)
{
    LIST_FOREACH (struct hook, h, &core->webhooks->hooks, node)
        if (str_eqc(id, h->w.id) && view_has(who->view, h->w.tenant))
            return h;
    return NULL;
}

const struct webhook *webhook_find(struct core *core, const struct principal *who, struct str id)
{
    const struct hook *h = hook_find(core, who, id);
    return h ? &h->w : NULL;
}

static struct hook *hook_need(struct core *core, const struct actor *actor, struct str id, struct err *err)
{
    struct hook *h = hook_find(core, &actor->who, id);
    if (!h)
        (void)err_set(err, ERR_NOT_FOUND, "there is no such webhook");
    return h;
}

int webhook_set(struct core *core, const struct actor *actor, struct str id, const json_t *changes,
                const struct webhook **ret_webhook, struct err *err)
{
    struct hook *h = hook_need(core, actor, id, err);
    uint64_t seq;
    if (!h)
        return -1;
    json_t *before = h->w.config, *config = json_deep_copy(before);
    (void)json_object_update(config, (json_t *)changes);
    /* One that may not be reached any more can still be switched off. */
    if (hook_check(config, err) < 0 || (json_object_get(changes, "url") && hook_check_target(core, config, err) < 0) ||
        hook_act(core, actor, EVENT_WEBHOOK_SET, config, h->w.tenant, &seq, err) < 0) {
        json_decref(config);
        return -1;
    }
    h->w.config = config;
    if (action_end(core, actor, seq, EVENT_WEBHOOK_SET, hook_store(h, err), err) < 0) {
        h->w.config = before;
        json_decref(config);
        return -1;
    }
    json_decref(before);
    /* What failed there may go well where it leads now. */
    h->tries = 0;
    loop_alarm_clear(core->loop, &h->retry);
    loop_later(core->loop, &core->webhooks->job);
    *ret_webhook = &h->w;
    return 0;
}

int webhook_remove(struct core *core, const struct actor *actor, struct str id, struct err *err)
{
    struct hook *h = hook_need(core, actor, id, err);
    uint64_t seq;
    if (!h || hook_act(core, actor, EVENT_WEBHOOK_REMOVE, h->w.config, h->w.tenant, &seq, err) < 0)
        return -1;
    int r = webhook_rows_delete(core->config.store, h->w.id, err);
    if (action_end(core, actor, seq, EVENT_WEBHOOK_REMOVE, r < 0 ? r : keeper_commit(core->keeper, err), err) < 0)
        return -1;
    hook_free(h);
    return 0;
}

void webhook_each(struct core *core, const struct principal *who, void (*fn)(void *ctx, const struct webhook *w),
                  void *ctx)
{
    LIST_FOREACH (struct hook, h, &core->webhooks->hooks, node)
        if (view_has(who->view, h->w.tenant))
            fn(ctx, &h->w);
}

/* ---- the core's ---- */

struct webhooks *webhooks_new(struct core *core)
{
    struct webhooks *all = mem_new(struct webhooks);
    all->core = core;
    list_init(&all->hooks);
    loop_job_init(&all->job, webhooks_on_job);
    all->store_hook = (struct store_hook){NULL, webhooks_on_committed, NULL, all, {0}};
    store_hook_add(core->config.store, &all->store_hook);
    return all;
}

static void webhooks_on_row(void *ctx, const struct store_webhook *row)
{
    json_t *config = json_loads(row->config, JSON_REJECT_DUPLICATES, NULL);
    struct err ignored;
    if (hook_check(config, &ignored) == 0)
        (void)hook_new(ctx, row->id, row->tenant, config, row->cursor);
    else
        json_decref(config);
}

int webhooks_load(struct core *core, struct err *err)
{
    if (webhook_rows_each(core->config.store, webhooks_on_row, core->webhooks, err) < 0)
        return -1;
    loop_later(core->loop, &core->webhooks->job);
    return 0;
}

void webhooks_free(struct webhooks *all)
{
    LIST_FOREACH (struct hook, h, &all->hooks, node)
        hook_free(h);
    loop_job_cancel(&all->job);
    store_hook_remove(&all->store_hook);
    mem_free(all);
}

size_t webhooks_under_way(struct webhooks *all)
{
    size_t n = 0;
    LIST_FOREACH (struct hook, h, &all->hooks, node)
        n += h->call || h->retry.slot;
    return n;
}

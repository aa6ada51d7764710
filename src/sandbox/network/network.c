/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. `policy` is what the client was told last. cove-egress gets it when it comes up, when the sandbox is taken over,
 *     and after a change of which nobody knows whether it was taken; until then it denies all.
 *  2. A change (network_change.c) seals what must be sealed, piece by piece, then tells the policy, then keeps it. Only
 *     what was kept becomes `policy`; a change that can't be kept is taken back. One at a time.
 *  3. The change of a start runs beside coved's work and ends the step START_NETWORK; until then the row of a new
 *     sandbox has a policy that denies all, if anything must be sealed.
 *  4. net.up and net.down are about this sandbox: whether cove-egress has its policy. The first time is no event.
 */
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/action.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/network/network_life.h"
#include "sandbox/record/record.h"

enum { NETWORK_RETRY_MS = 5000, CA_MAX = 40 * 1024, PEM_MAX = 16 * 1024 };

struct egress_link *network_link(const struct network *n)
{
    return n->sb->core->networks->link;
}

const char *network_sealed_for(const struct network *n)
{
    return n->sealed_for[0] ? n->sealed_for : n->sb->info.id;
}

bool network_closes(const struct network *n)
{
    return n->sb->core->closing || n->is_over;
}

/* ---- what cove-egress is told ---- */

json_t *network_policy_message(const struct network *n, json_t *policy)
{
    return json_pack("{s:s,s:s,s:o,s:o*,s:o*}", "op", "policy", "id", n->sb->info.id, "policy",
                     policy_of_sandbox(policy, n->sb), "sealed_for",
                     n->sealed_for[0] ? json_string(n->sealed_for) : NULL, "ca", json_string(n->ca));
}

void network_set_state(struct network *n, int state, const char *why)
{
    int before = n->state;
    n->state = state;
    if (before == state || network_closes(n) || (before == NETWORK_UNKNOWN && state == NETWORK_UP))
        return;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_SOME("why", why));
    action_observe(n->sb, 0, state == NETWORK_UP ? EVENT_NET_UP : EVENT_NET_DOWN, EVENT_OBSERVED_HOST,
                   event_data_end(&d));
}

static void network_on_retry(struct loop_alarm *alarm)
{
    network_push(container_of(alarm, struct network, retry));
}

void network_retry_later(struct network *n)
{
    loop_alarm_set(n->sb->core->loop, &n->retry, clock_mono() + NETWORK_RETRY_MS * USEC_PER_MS, network_on_retry);
}

static bool is_pem(const char *text)
{
    size_t n = strlen(text);
    if (n > PEM_MAX || !str_starts(str_of(text), STR("-----BEGIN CERTIFICATE-----\n")))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((text[i] < ' ' || text[i] > '~') && text[i] != '\n')
            return false;
    return text[n - 1] == '\n';
}

int network_take_ca(struct network *n, const json_t *answer, bool *ret_is_new, struct err *err)
{
    const char *ca = json_string_value(json_object_get(answer, "ca"));
    const char *pem = json_string_value(json_object_get(answer, "ca_pem"));
    *ret_is_new = false;
    if (!ca && !pem)
        return 0;
    if (!ca || !pem || strlen(ca) > CA_MAX || !is_pem(pem))
        return err_set(err, ERR_INTERNAL, "cove-egress answered with something that is not a certificate");
    *ret_is_new = !n->ca_pem || strcmp(n->ca_pem, pem) != 0;
    if (!*ret_is_new)
        return 0;
    MEM_FREE(n->ca, n->ca_pem);
    n->ca = mem_strdup(ca);
    n->ca_pem = mem_strdup(pem);
    n->has_ca = false;
    return 0;
}

void network_ca_installed(struct network *n, const struct err *err)
{
    n->install = NULL;
    n->has_ca = !err;
    if (!err)
        rows_network(n->sb);
    start_done(n->sb, START_CERTIFICATE, err);
}

static void on_installed(void *ctx, const struct err *err)
{
    struct network *n = ctx;
    if (err && !start_awaits(n->sb, START_CERTIFICATE))
        log_warn("install the certificate of sandbox %s: %s", n->sb->info.id, err->msg);
    network_ca_installed(n, err);
}

static void on_pushed(void *ctx, const json_t *answer, const struct err *err)
{
    struct network *n = ctx;
    struct err local;
    bool is_new = false;
    n->push = NULL;
    if (network_closes(n))
        return;
    if (answer && network_take_ca(n, answer, &is_new, &local) < 0) {
        answer = NULL;
        err = &local;
    }
    if (!answer) {
        log_warn("tell the policy of sandbox %s: %s", n->sb->info.id, err->msg);
        network_set_state(n, NETWORK_DOWN, err->msg);
        if (egress_link_is_up(network_link(n)))
            network_retry_later(n);
        return;
    }
    network_set_state(n, NETWORK_UP, NULL);
    if (is_new && !n->install && n->sb->info.state == SANDBOX_RUNNING &&
        ca_install(n->sb, n->ca_pem, on_installed, n, &n->install, &local) < 0)
        log_warn("install the certificate of sandbox %s again: %s", n->sb->info.id, local.msg);
}

void network_push(struct network *n)
{
    struct err err;
    if (n->push || change_asks(n) || network_closes(n) || !egress_link_is_up(network_link(n)))
        return;
    if (egress_link_call(network_link(n), network_policy_message(n, n->policy), "done", on_pushed, n, &n->push, &err) <
        0) {
        network_set_state(n, NETWORK_DOWN, err.msg);
        network_retry_later(n);
    }
}

/* ---- questions ---- */

struct check {
    network_check_fn done;
    void *ctx;
};

static void on_checked(void *ctx, const json_t *answer, const struct err *err)
{
    struct check c = *(struct check *)ctx;
    mem_free(ctx);
    c.done(c.ctx, answer, err);
}

int network_check(struct sandbox *sb, struct str url, struct str method, network_check_fn done, void *ctx,
                  struct err *err)
{
    struct egress_call *call;
    if (sandbox_usable(sb, err) < 0)
        return -1;
    if (!egress_link_is_up(network_link(sb->network)))
        return network_unavailable(err);
    json_t *m = json_pack("{s:s,s:s,s:s%,s:s%}", "op", "check", "id", sb->info.id, "url", url.p, url.n, "method",
                          method.p, method.n);
    if (!m)
        return err_set(err, ERR_INVALID_ARGUMENT, "URL and method must be UTF-8");
    struct check *c = mem_new(struct check);
    *c = (struct check){done, ctx};
    if (egress_link_call(network_link(sb->network), m, "checked", on_checked, c, &call, err) < 0) {
        mem_free(c);
        return -1;
    }
    return 0;
}

const json_t *network_policy(const struct sandbox *sb)
{
    return sb->network->policy;
}

const json_t *network_fields(const struct sandbox *sb)
{
    return sb->network->fields;
}

bool network_is_up(const struct sandbox *sb)
{
    return sb->network->state == NETWORK_UP && !sb->network->is_over;
}

int network_unavailable(struct err *err)
{
    return err_set(
        err, ERR_UNAVAILABLE,
        "network rules can't be enforced: cove-egress is not running; 'cove doctor' says what this machine lacks");
}

/* ---- a sandbox's network ---- */

static void drop_checked(struct networks *all)
{
    json_decref(TAKE_PTR(all->asked));
    json_decref(TAKE_PTR(all->checked));
}

int network_check_spec(const struct core *core, const struct sandbox_spec *spec, struct err *err)
{
    if (!spec->network || !spec->network->policy)
        return 0;
    struct networks *all = core->networks;
    json_t *normal = policy_normalise(spec->network->policy, err);
    if (!normal)
        return err_prefix(err, "network");
    drop_checked(all);
    all->asked = json_incref((json_t *)spec->network->policy);
    all->checked = normal;
    return egress_link_is_up(core->networks->link) ? 0 : network_unavailable(err);
}

/* The very object that was checked: a request is checked and its sandbox made in one go. */
static json_t *take_checked(struct networks *all, const json_t *asked)
{
    json_t *checked = all->asked == asked ? json_incref(all->checked) : NULL;
    drop_checked(all);
    return checked;
}

void network_new(struct sandbox *sb, const struct sandbox_spec *spec)
{
    struct network *n = mem_new(struct network);
    list_init(&n->asks);
    struct policy_literal ignored;
    struct err err;
    const json_t *given = spec && spec->network ? spec->network->policy : NULL;
    json_t *policy = given ? take_checked(sb->core->networks, given) : NULL;
    if (given && !policy)
        policy = policy_normalise(given, &err);
    n->sb = sb;
    sb->network = n;
    n->has_rules = policy != NULL;
    if (!policy)
        policy = network_default(sb->core, sb->info.allow_internet);
    if (spec && spec->network)
        n->fields = json_deep_copy(spec->network->fields);
    if (policy_next_literal(policy, &ignored)) {
        change_begin_with(n, policy);
        n->policy = policy_default(false);
    } else {
        n->policy = policy;
    }
}

bool network_is_plain(const struct sandbox *sb)
{
    const struct network *n = sb->network;
    return !n->has_rules && !n->change && !n->ca_pem && sb->info.allow_internet; /* as network_default() has it */
}

void network_replace(struct sandbox *sb, const struct sandbox_spec *spec)
{
    struct network *n = sb->network;
    egress_call_cancel(TAKE_PTR(n->push));
    ca_install_cancel(TAKE_PTR(n->install));
    change_cancel(n);
    network_log_stop(n);
    network_free(sb);
    network_new(sb, spec);
}

void network_new_like(struct sandbox *sb, const struct sandbox *of)
{
    const struct network *from = of->network;
    struct network *n = mem_new(struct network);
    list_init(&n->asks);
    n->sb = sb;
    sb->network = n;
    n->has_rules = from->has_rules;
    n->policy = json_deep_copy(from->policy);
    n->fields = from->fields ? json_deep_copy(from->fields) : NULL;
    (void)snprintf(n->sealed_for, sizeof(n->sealed_for), "%s", network_sealed_for(from));
}

bool network_wants_ca(const struct sandbox *sb)
{
    return (sb->network->ca_pem || sb->core->config.trust) && !sb->network->has_ca;
}

int network_install_ca(struct sandbox *sb, struct err *err)
{
    struct network *n = sb->network;
    return n->install ? 0 : ca_install(sb, n->ca_pem, on_installed, n, &n->install, err);
}

int network_install_ca_in(struct sandbox *nest, network_fn done, void *ctx, struct ca_install **ret_install,
                          struct err *err)
{
    const char *pem = nest->within->network->ca_pem;
    return pem || nest->core->config.trust ? ca_install(nest, pem, done, ctx, ret_install, err) : 1;
}

void network_recover(struct sandbox *sb)
{
    network_push(sb->network);
}

void network_forget(struct sandbox *sb)
{
    struct network *n = sb->network;
    if (n->is_over)
        return;
    n->is_over = true;
    egress_call_cancel(TAKE_PTR(n->push));
    ca_install_cancel(TAKE_PTR(n->install));
    loop_alarm_clear(sb->core->loop, &n->retry);
    change_cancel(n);
    if (!sb->core->closing)
        egress_link_tell(sb->core->networks->link, json_pack("{s:s,s:s}", "op", "forget", "id", sb->info.id));
}

void network_end_log(struct sandbox *sb)
{
    network_log_stop(sb->network);
}

void network_free(struct sandbox *sb)
{
    struct network *n = TAKE_PTR(sb->network);
    if (!n)
        return;
    assert(!n->change && !n->push && !n->install);
    network_asks_free(n);
    loop_alarm_clear(sb->core->loop, &n->retry);
    loop_alarm_clear(sb->core->loop, &n->sums_alarm);
    map_fini(&n->logged);
    json_decref(n->policy);
    json_decref(n->fields);
    MEM_FREE(n->ca, n->ca_pem, n);
}

/* ---- the row ---- */

char *network_row(const struct sandbox *sb)
{
    const struct network *n = sb->network;
    json_t *row = json_pack("{s:b,s:b,s:O,s:O*,s:o*,s:o*,s:o*}", "internet", sb->info.allow_internet, "rules",
                            n->has_rules, "policy", n->policy, "fields", n->fields, "sealed_for",
                            n->sealed_for[0] ? json_string(n->sealed_for) : NULL, "ca", json_string(n->ca), "ca_pem",
                            n->has_ca ? json_string(n->ca_pem) : NULL);
    char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    return text;
}

/* What can't be read denies all. */
void network_from_row(struct sandbox *sb, const char *text)
{
    struct err err;
    json_t *row = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *internet = json_object_get(row, "internet"), *policy = json_object_get(row, "policy");
    if (json_is_boolean(internet))
        sb->info.allow_internet = json_is_true(internet);
    network_new(sb, NULL);
    struct network *n = sb->network;
    n->has_rules = json_is_true(json_object_get(row, "rules"));
    json_t *kept = policy ? policy_normalise(policy, &err) : NULL;
    if (kept || policy || !row) {
        json_decref(n->policy);
        n->policy = kept ? kept : policy_default(false);
    }
    if (policy && !kept)
        log_error("the policy of sandbox %s can't be read, all is denied: %s", sb->info.id, err.msg);
    if (json_is_object(json_object_get(row, "fields")))
        n->fields = json_incref(json_object_get(row, "fields"));
    const char *sealed_for = json_string_value(json_object_get(row, "sealed_for"));
    if (sealed_for && id_is_sandbox(str_of(sealed_for)))
        (void)snprintf(n->sealed_for, sizeof(n->sealed_for), "%s", sealed_for);
    n->ca = mem_strdup(json_string_value(json_object_get(row, "ca")));
    n->ca_pem = mem_strdup(json_string_value(json_object_get(row, "ca_pem")));
    n->has_ca = n->ca_pem || sb->core->config.trust; /* those of the service were there before it ran */
    json_decref(row);
}

/* ---- all of them ---- */

static void on_up(void *ctx)
{
    struct core *core = ((struct networks *)ctx)->core;
    MAP_FOREACH (struct sandbox, sb, &core->by_id)
        if (!sandbox_state_is_over(sb->info.state))
            network_push(sb->network);
}

static void on_down(void *ctx, const char *why)
{
    struct core *core = ((struct networks *)ctx)->core;
    MAP_FOREACH (struct sandbox, sb, &core->by_id) {
        if (!sandbox_state_is_over(sb->info.state))
            network_log_stop(sb->network); /* its numbers of flows begin anew */
        if (sb->network->state == NETWORK_UP)
            network_set_state(sb->network, NETWORK_DOWN, why);
    }
}

/* False: what it says makes no sense. */
static bool network_log_secret(struct core *core, const char *name, const char *what, int64_t uid)
{
    char actor[32];
    bool is_set = strcmp(what, "set") == 0;
    if (!name[0] || (!is_set && strcmp(what, "removed") != 0) || uid < 0 || uid > UINT32_MAX)
        return false;
    (void)snprintf(actor, sizeof(actor), "cli:uid=%lld", (long long)uid);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("name", name));
    action_note_limited(core, SERVICE_LOG_ID, actor, 0, is_set ? EVENT_SECRET_SET : EVENT_SECRET_REMOVED,
                        event_data_end(&d));
    return true;
}

static bool on_told(void *ctx, const char *op, json_t *message)
{
    struct networks *all = ctx;
    if (strcmp(op, "secret") != 0)
        return network_log(all, op, message);
    const char *name = json_string_value(json_object_get(message, "name")),
               *what = json_string_value(json_object_get(message, "what"));
    const json_t *uid = json_object_get(message, "uid");
    return name && what && json_is_integer(uid) && network_log_secret(all->core, name, what, json_integer_value(uid));
}

struct networks *networks_new(struct core *core)
{
    static const struct egress_link_ops ops = {on_up, on_down, on_told};
    struct networks *all = mem_new(struct networks);
    all->core = core;
    all->link = egress_link_new(core->loop, &ops, all);
    return all;
}

void networks_free(struct networks *all)
{
    if (!all)
        return;
    egress_link_free(all->link);
    drop_checked(all);
    mem_free(all);
}

void networks_attach(struct networks *all, int fd)
{
    if (fd < 0)
        return;
    all->core->figures.egress_came++;
    egress_link_attach(all->link, fd);
}

struct egress_link *network_link_of(const struct networks *all)
{
    return all->link;
}

bool networks_are_up(const struct networks *all)
{
    return egress_link_is_up(all->link);
}

const struct pair *network_envs(const struct sandbox *sb, unsigned which, size_t *ret_n)
{
    static const struct pair envs[] = {
        {STR("SSL_CERT_FILE"), STR(NETWORK_CA_BUNDLE)},
        {STR("NODE_EXTRA_CA_CERTS"), STR(NETWORK_CA_FILE)},
        {STR("REQUESTS_CA_BUNDLE"), STR(NETWORK_CA_BUNDLE)},
        {STR("CURL_CA_BUNDLE"), STR(NETWORK_CA_BUNDLE)},
        {STR("GIT_SSL_CAINFO"), STR(NETWORK_CA_BUNDLE)},
        {STR("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"), STR(NETWORK_CA_BUNDLE)},
        {STR("JAVA_TOOL_OPTIONS"), STR("-Djavax.net.ssl.trustStore=" NETWORK_CA_JAVA)},
    };
    const struct core_config *c = &sb->core->config;
    const struct network *network = sb->within ? sb->within->network : sb->network;
    const bool has_ca = sb->has_own_root ? sb->has_own_ca : network->has_ca || network->install;
    *ret_n = which == 0 ? has_ca ? ARRAY_SIZE(envs) : 0 : c->n_envs;
    return which == 0 ? envs : c->envs;
}

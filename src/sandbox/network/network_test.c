/* SPDX-License-Identifier: Apache-2.0 */
/* What cove-egress is told of a sandbox and when, what the client is told, and what an egress that lies can do. */
#include "base/mem.h"
#include "sandbox/life/pause.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/test_world.h"
#include "wire/egress.h"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#define PEM "-----BEGIN CERTIFICATE-----\nQ09WRQ==\n-----END CERTIFICATE-----\n"
#define PEM2 "-----BEGIN CERTIFICATE-----\nQU5PVEhFUg==\n-----END CERTIFICATE-----\n"
#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define FILE_INSIDE "/usr/local/share/ca-certificates/cove-sandbox.crt"

static void on_done(void *ctx, const struct err *err)
{
    world_on_done(ctx, NULL, err);
}

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

static int begin(struct world *w, const char *policy, struct world_outcome *o, struct err *err)
{
    json_t *json = policy ? parse(policy) : NULL;
    struct network_spec network = {.policy = json, .allow_internet = true};
    struct sandbox_spec spec = {
        .template_ref = STR("base"), .timeout_ms = 300000, .allow_internet = true, .network = policy ? &network : NULL};
    int r = sandbox_create(w->core, &test_actor, &spec, world_on_done, o, err);
    json_decref(json);
    return r;
}

static struct sandbox *make(struct world *w, const char *policy)
{
    struct world_outcome o = {0};
    struct err err;
    if (begin(w, policy, &o, &err) < 0)
        fail_msg("%s", err.msg);
    WAIT(w, o.calls);
    if (!o.sb)
        fail_msg("%s", o.err.msg);
    return o.sb;
}

static int set(struct sandbox *sb, const char *policy, struct world_outcome *o, struct err *err)
{
    json_t *json = parse(policy);
    int r =
        network_set(sb, &test_actor, &(struct network_spec){.policy = json, .allow_internet = true}, on_done, o, err);
    json_decref(json);
    return r;
}

static const char *id_of(const struct sandbox *sb)
{
    return sandbox_info(sb)->id;
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static const char *row_of(struct world *w, const char *id, struct arena *arena)
{
    struct store_sandbox row;
    struct err err;
    assert_int_equal(store_commit(w->store, &err), 0);
    assert_int_equal(sandbox_rows_get(w->store, id, arena, &row, &err), 0);
    return row.network;
}

static const char *file_of(struct world *w, const struct sandbox *sb, const char *path)
{
    static char text[8192];
    struct buf *b = map_get(&world_agent(w, sb)->files, str_of(path));
    (void)snprintf(text, sizeof(text), "%.*s", b ? (int)buf_len(b) : 0, b && buf_len(b) ? buf_data(b) : "");
    return text;
}

static void put_file(struct world *w, const struct sandbox *sb, const char *path, const char *text)
{
    struct buf *b = map_get(&world_agent(w, sb)->files, str_of(path));
    if (!b) {
        b = mem_new(struct buf);
        buf_init(b, 1 << 20);
        (void)map_put(&world_agent(w, sb)->files, str_of(path), b);
    }
    buf_clear(b);
    (void)buf_append_cstr(b, text);
}

static const char keyed[] =
    "{\"default\":\"deny\",\"rules\":[{\"allow\":\"api.example.com\"}],"
    "\"inject\":[{\"host\":\"api.example.com\",\"headers\":[{\"name\":\"x-key\",\"value\":\"hunter2-$$x\"},"
    "{\"name\":\"authorization\",\"value\":\"Bearer ${secret:TOKEN}\"}]}]}";

/* ---- creation ---- */

static void nobody_is_told_before_the_policy_is_in_force(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->egress.is_mute = true;
    assert_int_equal(begin(w, NULL, &o, &err), 0);
    WAIT(w, w->egress.last_tag && w->creates); /* both were asked at once */
    world_turns(w, 100);
    assert_int_equal(o.calls, 0);
    assert_int_equal(sandbox_count(w->core), 0);
    AUTO_FREE char *answer = mem_printf("{\"op\":\"done\",\"tag\":%lld}", (long long)w->egress.last_tag);
    egress_say(w, answer);
    WAIT(w, o.calls);
    assert_non_null(o.sb);
    assert_true(network_is_up(o.sb));
    assert_int_equal(world_count_events(w, id_of(o.sb), EVENT_NET_UP), 0);
    assert_int_equal(world_count_events(w, id_of(o.sb), EVENT_NET_POLICY), 0);
}

static void all_or_nothing_by_internet(void **state)
{
    struct world *w = *state;
    struct sandbox *open = world_sandbox(w, NULL);
    struct sandbox *closed = world_sandbox(w, &(struct sandbox_spec){.timeout_ms = 60000});
    assert_true(has(egress_policy(w, id_of(open)), "\"policy\":{\"default\":\"allow\"}"));
    assert_true(has(egress_policy(w, id_of(closed)), "\"policy\":{\"default\":\"deny\"}"));
}

static void rules_are_told_kept_and_on_record(void **state)
{
    struct world *w = *state;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct sandbox *sb = make(w, "{\"rules\":[{\"allow\":\"example.com\",\"ports\":[443]},{\"deny\":\"*\"}]}");
    assert_true(has(egress_policy(w, id_of(sb)), "\"allow\":\"example.com\""));
    assert_true(has(row_of(w, id_of(sb), &arena), "\"allow\":\"example.com\""));
    const char *data = world_event_data(w, id_of(sb), EVENT_NET_POLICY);
    assert_true(has(data, "\"default\":\"deny\"") && has(data, "example.com") && has(data, "\"n_rules\":2"));
}

static void warnings_are_on_record(void **state)
{
    struct world *w = *state;
    struct sandbox *half = make(w, "{\"default\":\"allow\",\"rules\":[{\"deny\":\"8.8.8.8\"}]}");
    struct sandbox *named = make(w, "{\"default\":\"allow\",\"rules\":[{\"deny\":\"a.test\"}]}");
    assert_true(has(world_event_data(w, id_of(half), EVENT_NET_POLICY), "\"warnings\":[\"rules[0] denies 8.8.8.8 "));
    assert_false(has(world_event_data(w, id_of(named), EVENT_NET_POLICY), "warnings"));
}

static void wrong_rules_are_refused_at_once(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    assert_int_equal(begin(w, "{\"rules\":[{\"allow\":\"exa mple.com\"}]}", &o, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_true(has(err.msg, "rules[0]"));
    assert_int_equal(w->creates, 0);
}

static void without_egress_only_rules_are_refused(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    egress_stop(w);
    world_turns(w, 50);
    assert_int_equal(begin(w, "{\"default\":\"deny\"}", &o, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_true(has(err.msg, "cove doctor"));

    struct sandbox *sb = world_sandbox(w, NULL);
    assert_false(network_is_up(sb));
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_DOWN), 1);
    assert_int_equal(set(sb, "{}", &o, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    egress_start(w);
    WAIT(w, network_is_up(sb));
    assert_true(has(egress_policy(w, id_of(sb)), "\"default\":\"allow\""));
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_UP), 1);
}

static void an_egress_that_fails_refuses_rules_and_no_more(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->egress.refuses = "policy";
    struct sandbox *sb = world_sandbox(w, NULL);
    assert_false(network_is_up(sb));
    assert_int_equal(begin(w, "{\"default\":\"allow\"}", &o, &err), 0);
    WAIT(w, o.calls);
    assert_null(o.sb);
    assert_true(has(o.err.msg, "too many"));
    assert_int_equal(sandbox_count(w->core), 1);
    w->egress.refuses = NULL;
    WAIT(w, network_is_up(sb)); /* tried again */
}

static void an_egress_that_hangs_costs_its_time_out(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0}, plain = {0};
    struct err err;
    w->egress.is_mute = true;
    assert_int_equal(begin(w, "{\"default\":\"allow\"}", &o, &err), 0);
    assert_int_equal(begin(w, NULL, &plain, &err), 0);
    WAIT(w, o.calls && plain.calls);
    assert_null(o.sb);
    assert_non_null(plain.sb);
    assert_int_equal(world_count_events(w, id_of(plain.sb), EVENT_NET_DOWN), 1);
    /* What comes late is no lie. */
    egress_say(w, "{\"op\":\"done\",\"tag\":1}");
    world_turns(w, 30);
    assert_false(egress_is_hung_up(w));
}

static void who_is_killed_while_egress_thinks_is_gone(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->egress.is_mute = true;
    assert_int_equal(begin(w, keyed, &o, &err), 0);
    size_t it = 0;
    WAIT(w, map_count(&w->agents));
    struct fake_agent *a = map_next(&w->agents, &it);
    world_end_agent(w, a, SUP_CAUSE_EXITED);
    WAIT(w, o.calls);
    assert_null(o.sb);
    assert_int_equal(sandbox_count(w->core), 0);
}

/* ---- what is secret ---- */

static void header_values_are_sealed_before_they_are_kept(void **state)
{
    struct world *w = *state;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    w->egress.ca_pem = PEM;
    struct sandbox *sb = make(w, keyed);
    assert_int_equal(w->egress.n_seals, 1);
    assert_string_equal(w->egress.sealed, "hunter2-$x");
    const char *texts[] = {egress_policy(w, id_of(sb)), row_of(w, id_of(sb), &arena),
                           world_event_data(w, id_of(sb), EVENT_NET_POLICY)};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_false(has(texts[i], "hunter2"));
    assert_true(has(texts[0], "\"value\":\"${sealed:c2VhbGVk0}\""));
    assert_true(has(texts[0], "\"value\":\"Bearer ${secret:TOKEN}\""));
    assert_true(has(texts[1], "c2VhbGVk0"));
    assert_true(has(texts[2], "\"headers\":[\"x-key\",\"authorization\"]"));
}

static void mixed_values_are_sealed_in_pieces(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = make(
        w, "{\"inject\":[{\"host\":\"a.b\",\"headers\":[{\"name\":\"x\",\"value\":\"${secret:A}:mine${secret:B}-\"},"
           "{\"name\":\"y\",\"value\":\"${sealed:YQ==}\"},{\"name\":\"z\",\"value\":\"Basic dTpw\"}]}]}");
    assert_int_equal(w->egress.n_seals, 2);
    assert_true(has(egress_policy(w, id_of(sb)), "${secret:A}${sealed:c2VhbGVk0}${secret:B}-"));
    assert_true(has(egress_policy(w, id_of(sb)), "\"value\":\"${sealed:YQ==}\""));
    assert_string_equal(w->egress.sealed, "Basic dTpw");
}

static void secrets_are_each_tenants(void **state)
{
    static const struct {
        uint64_t tenant;
        const char *name, *told, *owner;
    } cases[] = {{0, "A", "A", NULL},
                 {5, "A", "_uid-1000.A", "uid-1000"},
                 {5, "A", "_tenant-5.A", "uid-0"},
                 {0, "_uid-1000.A", "_tenant-0._uid-1000.A", NULL},
                 {3, "A", "_tenant-3.A", NULL},
                 {3, "_tenant-4.A", "_tenant-3._tenant-4.A", NULL},
                 {0, "_tenant-3.A", "_tenant-0._tenant-3.A", NULL}};
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *policy = json_pack("{s:[{s:s,s:[{s:s,s:s++}],s:[{s:s,s:s}]}]}", "inject", "host", "a.b", "headers",
                                   "name", "x", "value", "Bearer ${secret:", cases[i].name, "} ${secret:Z}",
                                   "placeholders", "sentinel", "s", "secret", cases[i].name);
        json_t *own = policy_of_tenant(policy, &(struct policy_owner){cases[i].tenant, cases[i].owner});
        AUTO_FREE char *text = json_dumps(own, JSON_COMPACT);
        AUTO_FREE char *value = mem_printf("\"Bearer ${secret:%s} ${secret:%.*sZ}\"", cases[i].told,
                                           cases[i].tenant ? (int)strcspn(cases[i].told, ".") + 1 : 0, cases[i].told);
        AUTO_FREE char *secret = mem_printf("\"secret\":\"%s\"", cases[i].told);
        assert_true(has(text, value));
        assert_true(has(text, secret));
        json_decref(own);
        assert_int_equal(json_object_del(policy, "inject"), 0);
        own = policy_of_tenant(policy, &(struct policy_owner){cases[i].tenant, cases[i].owner});
        assert_ptr_equal(own, policy); /* names no secret: not copied */
        json_decref(own);
        json_decref(policy);
    }
}

static void what_can_not_be_sealed_is_not_kept(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->egress.refuses = "seal";
    assert_int_equal(begin(w, keyed, &o, &err), 0);
    WAIT(w, o.calls);
    assert_null(o.sb);
    assert_int_equal(w->egress.n_policies, 0);
}

/* ---- changes ---- */

static void a_change_is_told_kept_and_survives_egress(void **state)
{
    struct world *w = *state;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct world_outcome o = {0}, second = {0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    assert_int_equal(set(sb, "{\"rules\":[{\"allow\":\"10.0.0.0/8\"}]}", &o, &err), 0);
    assert_int_equal(set(sb, "{}", &second, &err), -1);
    assert_int_equal(err.code, ERR_ABORTED);
    assert_int_equal(o.calls, 0);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, 0);
    assert_true(has(egress_policy(w, id_of(sb)), "10.0.0.0/8"));
    assert_true(has(row_of(w, id_of(sb), &arena), "10.0.0.0/8"));
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_POLICY), 1);

    egress_start(w);
    WAIT(w, has(egress_policy(w, id_of(sb)), "10.0.0.0/8"));
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_DOWN), 1);
    WAIT(w, world_count_events(w, id_of(sb), EVENT_NET_UP) == 1);

    world_close(w);
    world_open(w);
    WAIT(w, has(egress_policy(w, json_string_value(
                                     json_object_get(network_policy(sandbox_only(w->core, &test_actor.who)), "default"))
                                     ? id_of(sandbox_only(w->core, &test_actor.who))
                                     : ""),
                "10.0.0.0/8"));
}

static void a_change_that_fails_changes_nothing(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    w->egress.refuses = "policy";
    assert_int_equal(set(sb, "{\"default\":\"deny\"}", &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(json_string_value(json_object_get(network_policy(sb), "default")), "allow");
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_FAILED), 1);
}

static void a_change_ends_with_its_sandbox(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0}, killed = {0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    w->egress.is_mute = true;
    assert_int_equal(set(sb, "{}", &o, &err), 0);
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &killed, &err), 0);
    WAIT(w, o.calls && killed.calls);
    assert_int_equal(o.err.code, ERR_NOT_FOUND);
    assert_int_equal(set(sb, "{}", &o, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void the_end_is_told_to_egress(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    WAIT(w, o.calls && w->egress.n_forgets == 1);
}

/* ---- the certificate ---- */

static void run_env(struct world *w, struct sandbox *sb, const struct pair *envs, size_t n)
{
    static const struct exec_ops ops = {0};
    struct exec_spec spec = {.cmd = STR("sleep"), .envs = envs, .n_envs = n};
    struct follow *f;
    struct err err;
    world_agent(w, sb)->last_env[0] = 0;
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, NULL, &f, &err), 0);
    exec_close(f);
    world_turns(w, 50);
}

/* Whatever its creator asks for comes to the agent behind the certificate, and knows of it. */
static void a_certificate_is_inside_before_anything_runs(void **state)
{
    struct world *w = *state;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct world_outcome o = {0};
    struct err err;
    w->egress.ca_pem = PEM;
    struct sandbox *sb = make(w, keyed);
    run_env(w, sb, NULL, 0);
    assert_string_equal(file_of(w, sb, FILE_INSIDE), PEM);
    assert_string_equal(file_of(w, sb, BUNDLE), PEM);
    assert_true(has(row_of(w, id_of(sb), &arena), "c2VhbGVkQ0E="));
    assert_true(has(row_of(w, id_of(sb), &arena), "BEGIN CERTIFICATE"));
    const char *env = world_agent(w, sb)->last_env;
    assert_true(has(env, "SSL_CERT_FILE=" BUNDLE) && has(env, "NODE_EXTRA_CA_CERTS=" FILE_INSIDE));
    assert_true(has(env, "REQUESTS_CA_BUNDLE=") && has(env, "CURL_CA_BUNDLE=") && has(env, "GIT_SSL_CAINFO="));
    assert_true(has(env, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/etc/ssl/certs/java/cacerts"));
    struct pair own[] = {{STR("SSL_CERT_FILE"), STR("/mine")}};
    run_env(w, sb, own, 1);
    assert_true(has(env, "SSL_CERT_FILE=/mine") && !has(env, "SSL_CERT_FILE=" BUNDLE));

    /* The same one is not put there again. */
    put_file(w, sb, BUNDLE, "other");
    assert_int_equal(set(sb, keyed, &o, &err), 0);
    WAIT(w, o.calls);
    assert_string_equal(file_of(w, sb, BUNDLE), "other");
    assert_true(has(egress_policy(w, id_of(sb)), "\"ca\":\"c2VhbGVkQ0E=\""));
}

static bool is_failed(const struct sandbox *sb)
{
    return sandbox_info(sb)->state == SANDBOX_FAILED;
}

static void without_its_certificate_a_sandbox_fails(void **state)
{
    struct world *w = *state;
    w->egress.ca_pem = PEM;
    w->trust_refusals = 1;
    struct sandbox *sb = make(w, keyed);
    WAIT(w, is_failed(sb));
    assert_true(
        has(world_event_data(w, id_of(sb), EVENT_SANDBOX_FAILED), "install the certificate: read-only file system"));
}

static void say_trusted(struct world *w, const struct sandbox *sb)
{
    struct fake_agent *a = world_agent(w, sb);
    size_t it = 0;
    for (struct fake_stream *st; (st = map_next(&a->streams, &it));) {
        if (st->verb == WIRE_TRUST) {
            fake_end(a, st->id, 0, "", STR_NULL);
            return;
        }
    }
    fail_msg("no certificate is on its way");
}

/* Who pauses at once does not wait for it; what was not said to be inside is put there again. */
static void a_certificate_outlives_a_pause(void **state)
{
    struct world *w = *state;
    for (int memory = 0; memory < 2; memory++) {
        struct world_outcome paused = {0}, resumed = {0};
        struct err err;
        w->egress.ca_pem = PEM;
        w->trust_silence = 1;
        struct sandbox *sb = make(w, keyed);
        assert_int_equal(sandbox_pause(sb, &test_actor, memory, world_on_done, &paused, &err), 0);
        WAIT(w, paused.calls);
        assert_int_equal(paused.err.code, 0);
        assert_int_equal(sandbox_resume(sb, &test_actor, &(struct sandbox_resume){0}, world_on_done, &resumed, &err),
                         0);
        WAIT(w, resumed.calls);
        assert_non_null(resumed.sb);
        if (memory)
            say_trusted(w, sb);
        assert_string_equal(file_of(w, sb, FILE_INSIDE), PEM);
        run_env(w, sb, NULL, 0);
        assert_true(has(world_agent(w, sb)->last_env, "SSL_CERT_FILE=" BUNDLE));
    }
}

/* A policy changes, and while its certificate is on its way the sandbox is paused and resumed: who resumes it hears of
 * it all the same. */
static void a_certificate_of_a_change_does_not_hold_up_a_resume(void **state)
{
    struct world *w = *state;
    struct world_outcome changed = {0}, paused = {0}, resumed = {0};
    struct err err;
    w->egress.ca_pem = PEM;
    struct sandbox *sb = world_sandbox(w, NULL);
    w->trust_silence = 1;
    assert_int_equal(set(sb, keyed, &changed, &err), 0);
    WAIT(w, sb->network->install);
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &paused, &err), 0);
    WAIT(w, paused.calls);
    assert_int_equal(sandbox_resume(sb, &test_actor, &(struct sandbox_resume){0}, world_on_done, &resumed, &err), 0);
    WAIT(w, resumed.calls);
    assert_int_equal(changed.calls, 0);
    say_trusted(w, sb);
    WAIT(w, changed.calls);
    assert_non_null(resumed.sb);
    assert_int_equal(changed.err.code, 0);
}

static void a_change_installs_its_certificate(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->egress.ca_pem = PEM;
    struct sandbox *sb = world_sandbox(w, NULL);
    put_file(w, sb, BUNDLE, "there already\n");
    assert_int_equal(set(sb, keyed, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, 0);
    assert_string_equal(file_of(w, sb, BUNDLE), "there already\n" PEM);

    /* An egress that lost its keys makes another one. */
    w->egress.ca_pem = PEM2;
    egress_start(w);
    WAIT(w, has(file_of(w, sb, BUNDLE), PEM2));
    assert_string_equal(file_of(w, sb, BUNDLE), "there already\n" PEM PEM2);
    assert_string_equal(file_of(w, sb, FILE_INSIDE), PEM2);
}

static void a_certificate_that_is_none_is_not_installed(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->egress.ca_pem = "-----BEGIN CERTIFICATE-----\n\x01\n";
    assert_int_equal(begin(w, keyed, &o, &err), 0);
    WAIT(w, o.calls);
    assert_null(o.sb);
}

/* ---- events ---- */

#define FLOW(n, what)                                                                                                  \
    "\"flow\":" n ",\"what\":\"" what                                                                                  \
    "\",\"proto\":\"tls\",\"name\":\"a.b\",\"address\":\"1.2.3.4\",\"port\":443,\"rule\":0,\"intercepted\":false"

static void what_egress_sees_is_on_record(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    egress_say_of(w, sb, "flow", FLOW("7", "open"));
    egress_say_of(
        w, sb, "request",
        "\"flow\":7,\"method\":\"GET\",\"url\":\"https://a.b/\",\"status\":200,\"rule\":0,\"injected\":[\"T\"]");
    egress_say_of(w, sb, "flow", FLOW("7", "close") ",\"sent\":10,\"received\":20,\"us\":30");
    egress_say_of(
        w, sb, "denied",
        "\"proto\":\"dns\",\"name\":\"c.d\",\"rule\":-1,\"reason\":\"by default\",\"suggestion\":\"{}\",\"count\":3");
    egress_say_of(w, sb, "unresolved", "\"name\":\"no.example\",\"reason\":\"there is no such name\",\"count\":2");
    egress_say_of(w, sb, "misuse", "\"secret\":\"T\",\"name\":\"evil.example\",\"port\":443");
    WAIT(w, world_count_events(w, id_of(sb), EVENT_NET_MISUSE) == 1);
    assert_true(has(world_event_data(w, id_of(sb), EVENT_NET_OPEN), "\"name\":\"a.b\""));
    assert_true(has(world_event_data(w, id_of(sb), EVENT_NET_CLOSE), "\"received\":20"));
    assert_true(has(world_event_data(w, id_of(sb), EVENT_NET_REQUEST), "\"injected\":[\"T\"]"));
    assert_true(
        has(world_event_data(w, id_of(sb), EVENT_NET_UNRESOLVED), "\"name\":\"no.example\",\"reason\":\"there"));
    const char *denied = world_event_data(w, id_of(sb), EVENT_NET_DENIED);
    assert_true(has(denied, "\"count\":3") && has(denied, "\"suggestion\":\"{}\""));
}

static void a_flood_of_flows_is_summed_up(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    char text[256];
    for (unsigned i = 1; i <= 5000; i++) {
        (void)snprintf(text, sizeof(text), FLOW("%u", "open"), i);
        egress_say_of(w, sb, "flow", text);
    }
    for (unsigned i = 1; i <= 5000; i++) {
        (void)snprintf(text, sizeof(text), FLOW("%u", "close") ",\"sent\":1,\"received\":2,\"us\":3", i);
        egress_say_of(w, sb, "flow", text);
    }
    WAIT(w, world_count_events(w, id_of(sb), EVENT_NET_FLOWS) >= 1);
    world_turns(w, 1200);
    size_t opened = world_count_events(w, id_of(sb), EVENT_NET_OPEN);
    size_t closed = world_count_events(w, id_of(sb), EVENT_NET_CLOSE);
    assert_in_range(opened, 200, 2000);
    assert_int_equal(opened, closed);
    assert_in_range(world_count_events(w, id_of(sb), EVENT_NET_FLOWS), 1, 15);
}

static void floods_of_other_kinds_are_bounded(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    for (unsigned i = 0; i < 2000; i++)
        egress_say_of(w, sb, "denied", "\"proto\":\"dns\",\"name\":\"c.d\",\"rule\":-1,\"reason\":\"r\",\"count\":1");
    WAIT(w, world_count_events(w, id_of(sb), EVENT_LOG_SUPPRESSED) >= 1);
    assert_in_range(world_count_events(w, id_of(sb), EVENT_NET_DENIED), 100, 1000);
}

static void nothing_is_recorded_after_the_end(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    struct sandbox *sb = world_sandbox(w, NULL);
    egress_say_of(w, sb, "flow", FLOW("1", "close") ",\"sent\":1,\"received\":1,\"us\":1");
    WAIT(w, sb->network && world_count_events(w, id_of(sb), EVENT_NET_FLOWS) == 0);
    world_turns(w, 30);
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    WAIT(w, sandbox_info(sb)->state == SANDBOX_ENDED);
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_FLOWS), 1);
    egress_say_of(w, sb, "misuse", "\"secret\":\"T\",\"name\":\"evil.example\",\"port\":443");
    world_turns(w, 30);
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_MISUSE), 0);
}

/* ---- lies ---- */

static void lies_close_the_socket(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    AUTO_FREE char *id = mem_strdup(id_of(sb));
    AUTO_FREE char *long_one = mem_alloc(EGRESS_MESSAGE_MAX + 2);
    memset(long_one, ' ', EGRESS_MESSAGE_MAX + 1);
    long_one[EGRESS_MESSAGE_MAX + 1] = 0;
    AUTO_FREE char *type = mem_printf("{\"op\":\"misuse\",\"id\":\"%s\",\"secret\":1,\"name\":\"a\",\"port\":1}", id);
    AUTO_FREE char *missing = mem_printf("{\"op\":\"flow\",\"id\":\"%s\",\"flow\":1,\"what\":\"open\"}", id);
    AUTO_FREE char *negative =
        mem_printf("{\"op\":\"misuse\",\"id\":\"%s\",\"secret\":\"s\",\"name\":\"a\",\"port\":-1}", id);
    const char *const lies[] = {"{",
                                "[]",
                                "{\"op\":7}",
                                "{}",
                                "{\"op\":\"flow\"}",
                                "{\"op\":\"done\",\"tag\":99999}",
                                "{\"op\":\"done\",\"tag\":\"1\"}",
                                "{\"op\":\"hello\",\"op\":\"hello\"}",
                                "{\"op\":\"unheard\",\"id\":\"i00000000000000000000\"}",
                                "{\"op\":\"flow\",\"id\":\"../../etc\"}",
                                type,
                                missing,
                                negative,
                                long_one};
    for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
        egress_say(w, lies[i]);
        WAIT(w, egress_is_hung_up(w));
        WAIT(w, !network_is_up(sb));
        egress_start(w);
        WAIT(w, network_is_up(sb));
    }
}

/* It may go on for as long as it lives. */
static void the_more_is_told_the_less(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    sb->network->n_told = 20000;
    for (unsigned i = 0; i < 300; i++)
        egress_say_of(w, sb, "denied", "\"proto\":\"dns\",\"name\":\"c.d\",\"rule\":-1,\"reason\":\"r\",\"count\":1");
    world_turns(w, 50);
    assert_in_range(world_count_events(w, id_of(sb), EVENT_NET_DENIED), 1, 40); /* ten a second */
    sb->network->n_told = 100000;
    size_t before = world_count_events(w, id_of(sb), EVENT_NET_DENIED);
    for (unsigned i = 0; i < 300; i++) {
        egress_say_of(w, sb, "denied", "\"proto\":\"dns\",\"name\":\"c.d\",\"rule\":-1,\"reason\":\"r\",\"count\":1");
        if (i % 50 == 0)
            world_turns(w, 300);
    }
    assert_in_range(world_count_events(w, id_of(sb), EVENT_NET_DENIED), before, before + 10); /* ten a minute */
}

/* Its end was lost; the next one with that number is another one. */
static void a_flow_that_begins_twice_is_two(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    egress_say_of(w, sb, "flow", FLOW("1", "open"));
    egress_say_of(w, sb, "flow", FLOW("1", "open"));
    egress_say_of(w, sb, "flow", FLOW("1", "close") ",\"sent\":1,\"received\":2,\"us\":3");
    WAIT(w, world_count_events(w, id_of(sb), EVENT_NET_CLOSE) == 1);
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_NET_OPEN), 2);
    assert_false(egress_is_hung_up(w));
}

static void an_answer_of_another_kind_is_a_lie(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    w->egress.is_mute = true;
    assert_int_equal(begin(w, keyed, &o, &err), 0);
    WAIT(w, w->egress.last_tag == 1);
    egress_say(w, "{\"op\":\"done\",\"tag\":1}"); /* to "seal" */
    WAIT(w, o.calls);
    assert_null(o.sb);
    WAIT(w, egress_is_hung_up(w));
}

static void of_sandboxes_that_are_nobodys_nothing_is_kept(void **state)
{
    struct world *w = *state;
    egress_say(w, "{\"op\":\"misuse\",\"id\":\"i00000000000000000000\",\"secret\":1}");
    world_turns(w, 30);
    assert_false(egress_is_hung_up(w));
    assert_int_equal(world_count_events(w, "i00000000000000000000", EVENT_NET_MISUSE), 0);
}

/* ---- questions ---- */

struct answer {
    unsigned calls;
    char verdict[32];
    struct err err;
};

static void on_checked(void *ctx, const json_t *json, const struct err *err)
{
    struct answer *a = ctx;
    a->calls++;
    if (err)
        a->err = *err;
    else
        (void)snprintf(a->verdict, sizeof(a->verdict), "%s", json_string_value(json_object_get(json, "verdict")));
}

static void a_question_is_answered(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct answer a = {0};
    struct err err;
    assert_int_equal(network_check(sb, STR("https://a.b/"), STR("GET"), on_checked, &a, &err), 0);
    assert_int_equal(network_check(sb, STR("\xff"), STR("GET"), on_checked, &a, &err), -1);
    WAIT(w, a.calls);
    assert_string_equal(a.verdict, "deny");
    w->egress.refuses = "check";
    assert_int_equal(network_check(sb, STR("https://a.b/"), STR("GET"), on_checked, &a, &err), 0);
    WAIT(w, a.calls == 2);
    assert_string_equal(a.err.msg, "too many");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(nobody_is_told_before_the_policy_is_in_force),
        TEST(all_or_nothing_by_internet),
        TEST(rules_are_told_kept_and_on_record),
        TEST(warnings_are_on_record),
        TEST(wrong_rules_are_refused_at_once),
        TEST(without_egress_only_rules_are_refused),
        TEST(an_egress_that_fails_refuses_rules_and_no_more),
        TEST(an_egress_that_hangs_costs_its_time_out),
        TEST(who_is_killed_while_egress_thinks_is_gone),
        TEST(header_values_are_sealed_before_they_are_kept),
        TEST(mixed_values_are_sealed_in_pieces),
        TEST(secrets_are_each_tenants),
        TEST(what_can_not_be_sealed_is_not_kept),
        TEST(a_change_is_told_kept_and_survives_egress),
        TEST(a_change_that_fails_changes_nothing),
        TEST(a_change_ends_with_its_sandbox),
        TEST(the_end_is_told_to_egress),
        TEST(a_certificate_is_inside_before_anything_runs),
        TEST(a_certificate_of_a_change_does_not_hold_up_a_resume),
        TEST(without_its_certificate_a_sandbox_fails),
        TEST(a_certificate_outlives_a_pause),
        TEST(a_change_installs_its_certificate),
        TEST(a_certificate_that_is_none_is_not_installed),
        TEST(what_egress_sees_is_on_record),
        TEST(a_flood_of_flows_is_summed_up),
        TEST(floods_of_other_kinds_are_bounded),
        TEST(nothing_is_recorded_after_the_end),
        TEST(lies_close_the_socket),
        TEST(a_flow_that_begins_twice_is_two),
        TEST(the_more_is_told_the_less),
        TEST(an_answer_of_another_kind_is_a_lie),
        TEST(of_sandboxes_that_are_nobodys_nothing_is_kept),
        TEST(a_question_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

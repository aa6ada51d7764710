/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to templates, secrets and the pool is on record, whoever did it, and whatever came of it. */
#include "base/mem.h"
#include "sandbox/action.h"
#include "sandbox/guard.h"
#include "sandbox/life/layers.h"
#include "sandbox/object.h"
#include "sandbox/templates.h"
#include "sandbox/tenant.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

struct told {
    enum event_kind kind;
    unsigned n;
    char actor[EVENT_ACTOR_MAX + 1];
    uint64_t seq, cause;
};

static bool note(const struct event *e, void *ctx)
{
    struct told *t = ctx;
    if (e->kind != t->kind)
        return true;
    t->n++;
    t->seq = e->seq;
    t->cause = e->cause;
    (void)snprintf(t->actor, sizeof(t->actor), "%.*s", (int)e->actor.n, e->actor.p);
    return true;
}

/* The last event of this kind, and how many there are. */
static struct told told(struct world *w, enum event_kind kind)
{
    struct told t = {.kind = kind};
    struct err err;
    (void)world_count_events(w, SERVICE_LOG_ID, kind);
    if (event_read(w->events, SERVICE_LOG_ID, 0, 100000, note, &t, &err) < 0)
        fail_msg("%s", err.msg);
    return t;
}

static const char *data(struct world *w, enum event_kind kind)
{
    return world_event_data(w, SERVICE_LOG_ID, kind);
}

static void what_is_done_to_templates(void **state)
{
    static const struct str tags[] = {{"v1", 2}, {"a\"b", 3}};
    struct world *w = *state;
    const struct template_build *build;
    const char *id;
    struct err err;
    const struct template_request request = {.name = STR("web"), .tags = tags, .n_tags = 1};
    assert_int_equal(told(w, EVENT_SERVICE_STARTED).n, 1);

    assert_int_equal(core_template_request(w->core, &test_actor, &request, &build, &err), 0);
    assert_string_equal(told(w, EVENT_TEMPLATE_REQUEST).actor, test_actor.name);
    assert_string_equal(data(w, EVENT_TEMPLATE_REQUEST), "{\"name\":\"web\",\"tags\":[\"v1\"]}");

    world_template(w, "app", NULL, NULL);
    assert_int_equal(core_template_tag(w->core, &test_actor, STR("app"), tags, 1, &id, &err), 0);
    assert_string_equal(data(w, EVENT_TEMPLATE_TAG), "{\"template\":\"app\",\"tags\":[\"v1\"]}");
    assert_int_equal(told(w, EVENT_SERVICE_REFUSED).n, 0);
    assert_int_equal(core_template_tag(w->core, &test_actor, STR("app"), tags + 1, 1, &id, &err), -1);
    assert_string_equal(data(w, EVENT_TEMPLATE_TAG), "{\"template\":\"app\",\"tags\":[\"a\\\"b\"]}");
    struct told refusal = told(w, EVENT_SERVICE_REFUSED);
    assert_int_equal(refusal.n, 1);
    assert_int_equal(refusal.cause, told(w, EVENT_TEMPLATE_TAG).seq);
    assert_non_null(strstr(data(w, EVENT_SERVICE_REFUSED), "\"what\":\"template.tag\",\"code\":\"invalid_argument\""));

    assert_int_equal(core_template_untag(w->core, &test_actor, STR("app"), tags, 1, &err), 0);
    assert_string_equal(data(w, EVENT_TEMPLATE_UNTAG), "{\"template\":\"app\",\"tags\":[\"v1\"]}");
    assert_int_equal(core_template_publish(w->core, &test_actor, STR("app"), true, &err), 0);
    assert_string_equal(data(w, EVENT_TEMPLATE_PUBLISH), "{\"template\":\"app\",\"public\":true}");
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("app"), &err), 0);
    assert_string_equal(data(w, EVENT_TEMPLATE_REMOVE), "{\"template\":\"app\"}");
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("app"), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(told(w, EVENT_TEMPLATE_REMOVE).n, 2);
    assert_int_equal(told(w, EVENT_SERVICE_REFUSED).n, 2);
}

/* A name without "default", one that was never built, one of a snapshot's tags, and what is no template's. */
static void templates_are_removed_by_what_they_are_called(void **state)
{
    static const struct str tags[] = {{"v1", 2}};
    struct world *w = *state;
    const struct template_build *build;
    struct template_info info;
    struct err err;
    const struct template_request request = {.name = STR("never"), .tags = tags, .n_tags = 1};
    assert_int_equal(core_template_request(w->core, &test_actor, &request, &build, &err), 0);
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("never:v2"), &err), -1);
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("never"), &err), 0);
    assert_int_equal(template_info_find(core_templates(w->core), TENANT_DEFAULT, STR("never"), &info, &err), -1);

    world_template(w, "app:v1", NULL, NULL);
    struct sandbox_spec spec = {.template_ref = STR("app:v1"), .timeout_ms = 60000};
    struct sandbox *sb = world_sandbox(w, &spec);
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("app"), &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, sandbox_info(sb)->id));
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("app:nope"), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("nobody"), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(core_template_remove(w->core, &test_actor, STR("base"), &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
}

static void what_a_rule_forbids_is_not_done(void **state)
{
    static const struct guard_rule rules[] = {{"no-publish", EVENT_TEMPLATE_PUBLISH, "", GUARD_DENY}};
    static struct guard_rules table = {rules, ARRAY_SIZE(rules), GUARD_ALLOW};
    static const struct guard guard = {guard_rules_decide, &table};
    struct world *w = *state;
    struct template_info info;
    struct err err;
    world_template(w, "app", NULL, NULL);
    w->core->guard = &guard;
    assert_int_equal(core_template_publish(w->core, &test_actor, STR("app"), true, &err), -1);
    assert_int_equal(err.code, ERR_PERMISSION_DENIED);
    assert_int_equal(template_info_find(core_templates(w->core), TENANT_DEFAULT, STR("app"), &info, &err), 0);
    assert_false(info.is_public);
    assert_int_equal(told(w, EVENT_TEMPLATE_PUBLISH).n, 0);
    assert_non_null(strstr(data(w, EVENT_GUARD_DENIED), "\"rule\":\"no-publish\""));
}

/* Whoever does as much as it can leaves the others' records where they are, and finds its own apart. */
static void a_tenant_has_a_log_of_its_own(void **state)
{
    struct world *w = *state;
    struct actor other = test_actor;
    struct str tags[] = {STR("v1")};
    struct event_bounds bounds;
    uint64_t owner;
    const char *id;
    struct err err;
    world_template(w, "app", NULL, NULL);
    assert_int_equal(core_template_publish(w->core, &test_actor, STR("app"), true, &err), 0);
    assert_int_equal(tenant_create(w->core, &test_actor, STR("other"), NULL, &err), 0);
    assert_int_equal(tenant_find(w->core, STR("other"), &other.who.tenant, &err), 0);
    other.who.view = other.who.tenant;
    const char *log = tenant_log(w->core, other.who.tenant);
    assert_string_not_equal(log, SERVICE_LOG_ID);
    assert_string_equal(tenant_log(w->core, TENANT_DEFAULT), SERVICE_LOG_ID);
    for (unsigned i = 0; i < LOG_KEEP + 1000; i++) {
        if (i % 100 == 0)
            assert_int_equal(store_commit(w->store, &err), 0);
        assert_int_equal(core_template_tag(w->core, &other, STR("no"), tags, 1, &id, &err), -1);
    }
    assert_int_equal(told(w, EVENT_TEMPLATE_PUBLISH).n, 1);
    assert_int_equal(told(w, EVENT_TENANT_CREATE).n, 1);
    assert_int_equal(told(w, EVENT_TEMPLATE_TAG).n, 0);
    assert_int_equal(told(w, EVENT_SERVICE_REFUSED).n, 0);
    assert_true(world_count_events(w, log, EVENT_TEMPLATE_TAG) > 0);
    assert_int_equal(event_bounds_get(w->events, log, &bounds, &err), 0);
    assert_true(bounds.last > LOG_KEEP && bounds.first > 1);
    assert_int_equal(tenant_of_log(w->core, log, &owner, &err), 0);
    assert_int_equal(owner, other.who.tenant);
    assert_int_equal(tenant_of_log(w->core, SERVICE_LOG_ID "-", &owner, &err), -1);
}

static void collected(void *ctx, const struct layers_garbage *found, size_t n, const struct err *err)
{
    unsigned *calls = ctx;
    (void)found, (void)n;
    assert_null(err);
    ++*calls;
}

static void what_is_done_to_the_pool(void **state)
{
    struct world *w = *state;
    unsigned calls = 0;
    struct err err;
    world_layer(w, "layer-aaaaaaaaaaaaaaaaaaaa", "");
    assert_int_equal(layers_collect(w->core, &test_actor, true, collected, &calls, &err), 0);
    WAIT(w, calls == 1);
    assert_int_equal(told(w, EVENT_POOL_COLLECT).n + told(w, EVENT_POOL_COLLECTED).n, 0);
    assert_int_equal(layers_collect(w->core, &test_actor, false, collected, &calls, &err), 0);
    assert_int_equal(layers_collect(w->core, &test_actor, false, collected, &calls, &err), -1);
    WAIT(w, calls == 2);
    assert_int_equal(told(w, EVENT_POOL_COLLECT).n, 2);
    assert_int_equal(told(w, EVENT_POOL_COLLECTED).n, 1);
    assert_non_null(strstr(data(w, EVENT_POOL_COLLECTED), "{\"layers\":1,"));
    assert_non_null(strstr(data(w, EVENT_SERVICE_REFUSED), "\"code\":\"aborted\""));

    assert_int_equal(core_warm_set(w->core, &test_actor, STR("base"), 2, 0, &err), 0);
    assert_string_equal(data(w, EVENT_POOL_WARM), "{\"template\":\"base\",\"count\":2}");
    assert_int_equal(core_warm_set(w->core, &test_actor, STR("nobody"), 2, 0, &err), -1);
    assert_int_equal(told(w, EVENT_SERVICE_REFUSED).n, 2);
}

static void what_is_done_to_secrets(void **state)
{
    static const char *const lies[] = {
        "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"set\",\"uid\":-1}",
        "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"read\",\"uid\":0}",
        "{\"op\":\"secret\",\"name\":\"\",\"what\":\"set\",\"uid\":0}",
        "{\"op\":\"secret\",\"name\":7,\"what\":\"set\",\"uid\":0}",
        "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"set\",\"uid\":\"0\"}",
        "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"set\"}",
    };
    struct world *w = *state;
    egress_say(w, "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"set\",\"uid\":1000}");
    egress_say(w, "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"removed\",\"uid\":0}");
    WAIT(w, told(w, EVENT_SECRET_REMOVED).n == 1);
    assert_string_equal(told(w, EVENT_SECRET_SET).actor, "cli:uid=1000");
    assert_string_equal(told(w, EVENT_SECRET_REMOVED).actor, "cli:uid=0");
    assert_string_equal(data(w, EVENT_SECRET_SET), "{\"name\":\"KEY\"}");
    for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
        egress_say(w, lies[i]);
        WAIT(w, egress_is_hung_up(w));
        egress_start(w);
    }
    assert_int_equal(told(w, EVENT_SECRET_SET).n + told(w, EVENT_SECRET_REMOVED).n, 2);
    for (size_t i = 0; i < 1000; i++) /* who may set some pushes nothing out of the log */
        egress_say(w, "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"set\",\"uid\":1000}");
    egress_say(w, "{\"op\":\"secret\",\"name\":\"KEY\",\"what\":\"removed\",\"uid\":1000}");
    WAIT(w, told(w, EVENT_SECRET_REMOVED).n == 2);
    assert_in_range(told(w, EVENT_SECRET_SET).n, 20, 100);
}

static void it_does_not_grow_for_ever(void **state)
{
    struct world *w = *state;
    struct event_bounds bounds;
    struct err err;
    for (size_t i = 0; i < LOG_KEEP + 1000; i++) {
        if (i % 100 == 0)
            assert_int_equal(store_commit(w->store, &err), 0);
        (void)action_note(w->core, SERVICE_LOG_ID, NULL, 0, EVENT_POOL_COLLECTED, STR("{}"));
    }
    for (size_t i = 0; i < 1000; i++)
        action_fruitless(w->core, TENANT_DEFAULT, 0, EVENT_POOL_WARM,
                         &(struct err){.code = ERR_NOT_FOUND, .msg = "none"});
    assert_in_range(told(w, EVENT_SERVICE_REFUSED).n, 1, 30);
    assert_int_equal(event_bounds_get(w->events, SERVICE_LOG_ID, &bounds, &err), 0);
    assert_in_range(bounds.last - bounds.first, LOG_KEEP - 1, LOG_KEEP + 1000);
    assert_true(bounds.first > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_done_to_templates, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(templates_are_removed_by_what_they_are_called, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_a_rule_forbids_is_not_done, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_tenant_has_a_log_of_its_own, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_is_done_to_the_pool, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_is_done_to_secrets, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(it_does_not_grow_for_ever, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

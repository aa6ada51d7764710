/* SPDX-License-Identifier: Apache-2.0 */
/* Builds in a world without coved and agents: what becomes of one that succeeds, fails, is cancelled or dies. */
#include "base/mem.h"
#include "build/internal.h"
#include "sandbox/tenant.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct site {
    struct world *w;
    struct builder *b;
    char id[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1];
};

static int setup(void **state)
{
    struct site *s = mem_new(struct site);
    void *world;
    struct err err;
    if (world_setup(&world) < 0)
        return -1;
    s->w = world;
    s->w->is_flag_up = true;
    struct builder_config config = {.core = s->w->core, .data_dir = s->w->dir->path, .concurrency = 1};
    assert_int_equal(builder_new(&config, &s->b, &err), 0);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct site *s = *state;
    void *world = s->w;
    char path[256];
    builder_free(s->b);
    world_turns(s->w, 50);
    (void)snprintf(path, sizeof(path), "%s/uploads", s->w->dir->path);
    (void)rmdir(path);
    mem_free(s);
    return world_teardown(&world);
}

static void begin_spec(struct site *s, const struct template_request *q, const struct build_spec *spec)
{
    const struct template_build *b;
    struct err err;
    assert_int_equal(template_request(core_templates(s->w->core), q, &b, &err), 0);
    memcpy(s->id, b->id, sizeof(s->id));
    memcpy(s->template_id, b->template_id, sizeof(s->template_id));
    if (builder_start(s->b, &test_actor, s->id, spec, &err) < 0)
        fail_msg("%s", err.msg);
}

/* Begins a build of these RUN steps. */
static void begin(struct site *s, const char *const *commands, size_t n)
{
    struct build_step steps[4] = {0};
    struct str args[4];
    struct template_request q = {.name = STR("app"), .cpu_milli = 1000, .memory_bytes = 1 << 28};
    for (size_t i = 0; i < n; i++) {
        args[i] = str_of(commands[i]);
        steps[i] = (struct build_step){.type = BUILD_RUN, .args = &args[i], .n_args = 1};
    }
    begin_spec(s, &q, &(struct build_spec){.template_ref = "base", .steps = steps, .n_steps = n});
}

static const struct template_build *now(struct site *s)
{
    return template_build_find(core_templates(s->w->core), TENANT_DEFAULT, str_of(s->id));
}

/* The last event of that kind in the log of the service. */
static const char *recorded(struct site *s, enum event_kind kind)
{
    return world_event_data(s->w, SERVICE_LOG_ID, kind);
}

static enum template_status end_of(struct site *s)
{
    WAIT(s->w, now(s)->status >= TEMPLATE_READY);
    WAIT(s->w, map_count(&s->w->agents) == 0); /* its sandbox is gone, whatever came of it */
    return now(s)->status;
}

#define BEGIN(s, ...) begin(s, (const char *const[]){__VA_ARGS__}, ARRAY_SIZE(((const char *const[]){__VA_ARGS__})))

static void each_step_is_a_layer_and_is_found_again(void **state)
{
    struct site *s = *state;
    BEGIN(s, "flag", "flag");
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(s->w->creates, 1);
    assert_int_equal(s->w->snapshots, 2);
    assert_int_equal(map_count(&s->w->layers), 2);
    BEGIN(s, "flag", "flag");
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(s->w->creates, 1); /* nothing was run */
    assert_int_equal(s->w->snapshots, 2);
    BEGIN(s, "flag", "echo");
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(s->w->creates, 2);
    assert_int_equal(s->w->snapshots, 3);
}

struct told {
    char text[256];
};

static void tell(void *ctx, const struct build_step_size *size)
{
    struct told *t = ctx;
    size_t n = strlen(t->text);
    (void)snprintf(t->text + n, sizeof(t->text) - n, "%s%s%s ", size->step, size->is_cached ? " cached" : "",
                   size->is_known ? size->bytes ? " more" : " nothing" : "");
}

static const char *steps_of(struct site *s)
{
    static struct told t;
    t = (struct told){""};
    builder_each_step(s->b, s->id, tell, &t);
    return t.text;
}

static void variables_are_found_again_like_other_steps(void **state)
{
    struct site *s = *state;
    const struct str env[] = {STR("A"), STR("1")}, other[] = {STR("A"), STR("2")}, run[] = {STR("flag")};
    struct build_step steps[] = {{.type = BUILD_ENV, .args = env, .n_args = 2},
                                 {.type = BUILD_RUN, .args = run, .n_args = 1}};
    struct template_request q = {.name = STR("app")};
    struct build_spec spec = {.template_ref = "base", .steps = steps, .n_steps = 2};
    begin_spec(s, &q, &spec);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_string_equal(steps_of(s), "1 nothing 2 "); /* this world's pool knows no sizes */
    begin_spec(s, &q, &spec);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_string_equal(steps_of(s), "1 cached nothing 2 cached ");
    assert_int_equal(s->w->snapshots, 1);
    steps[0].args = other;
    begin_spec(s, &q, &spec);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_string_equal(steps_of(s), "1 nothing 2 ");
    assert_int_equal(s->w->snapshots, 2);
    steps[0].force = true;
    begin_spec(s, &q, &spec);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_string_equal(steps_of(s), "1 nothing 2 ");
}

static void what_is_not_said_comes_from_below(void **state)
{
    struct site *s = *state;
    struct build_spec spec = {.template_ref = "base"};
    begin_spec(s, &(struct template_request){.name = STR("app")}, &spec);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(now(s)->memory_bytes, 268435456);
    assert_int_equal(now(s)->cpu_milli, 1000);
    assert_int_equal(now(s)->made->memory_bytes, 268435456);
    begin_spec(s, &(struct template_request){.name = STR("app"), .memory_bytes = 1 << 30}, &spec);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(now(s)->memory_bytes, 1 << 30);
    assert_int_equal(now(s)->cpu_milli, 1000);
    spec.template_ref = "app";
    begin_spec(s, &(struct template_request){.name = STR("child"), .cpu_milli = 500}, &spec);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(now(s)->memory_bytes, 1 << 30);
    assert_int_equal(now(s)->cpu_milli, 500);
}

/*
 * What FROM of a Dockerfile means: a template, or an image, of which there are none in this world: the process that
 * would fetch it is not asked for with a password as long as this.
 */
static bool is_taken_as_template(struct site *s, const char *from)
{
    static char password[128 * 1024];
    memset(password, 'x', sizeof(password) - 1);
    begin_spec(s, &(struct template_request){.name = STR("child")},
               &(struct build_spec){.from = from, .username = "me", .password = password});
    if (end_of(s) == TEMPLATE_READY)
        return true;
    assert_string_equal(now(s)->reason_step, "base");
    assert_string_equal(now(s)->reason, "the image's name or credentials are too long");
    return false;
}

static void from_is_a_template_here_or_an_image(void **state)
{
    struct site *s = *state;
    begin_spec(s, &(struct template_request){.name = STR("me/tool:v1")}, &(struct build_spec){.template_ref = "base"});
    assert_int_equal(end_of(s), TEMPLATE_READY);
    char id[sizeof(s->template_id)];
    memcpy(id, s->template_id, sizeof(id));
    begin_spec(s, &(struct template_request){.name = STR("never")}, &(struct build_spec){.template_ref = "nothing"});
    assert_int_equal(end_of(s), TEMPLATE_FAILED);
    assert_true(is_taken_as_template(s, "base"));
    assert_true(is_taken_as_template(s, "base:default"));
    assert_true(is_taken_as_template(s, "tool:v1"));
    assert_true(is_taken_as_template(s, "me/tool:v1"));
    assert_false(is_taken_as_template(s, "tool")); /* no build has that tag */
    assert_false(is_taken_as_template(s, "tool:v2"));
    assert_false(is_taken_as_template(s, "you/tool:v1"));
    assert_false(is_taken_as_template(s, "someone/base"));
    assert_false(is_taken_as_template(s, "library/base"));
    assert_false(is_taken_as_template(s, "docker.io/library/base"));
    assert_false(is_taken_as_template(s, "base@sha256:00"));
    assert_false(is_taken_as_template(s, "never"));
    assert_false(is_taken_as_template(s, "ubuntu:22.04"));
}

static void a_step_that_fails_is_named(void **state)
{
    struct site *s = *state;
    BEGIN(s, "flag", "count");
    assert_int_equal(end_of(s), TEMPLATE_FAILED);
    assert_string_equal(now(s)->reason_step, "2");
    assert_non_null(strstr(now(s)->reason, "exit status 3"));
    assert_int_equal(s->w->snapshots, 1);
    s->w->snapshot_error = ERR_RESOURCE_EXHAUSTED;
    BEGIN(s, "echo");
    assert_int_equal(end_of(s), TEMPLATE_FAILED);
    assert_string_equal(now(s)->reason_step, "1");
    s->w->snapshot_error = ERR_OK;
    s->w->create_error = ERR_RESOURCE_EXHAUSTED;
    BEGIN(s, "stderr");
    assert_int_equal(end_of(s), TEMPLATE_FAILED);
    assert_non_null(strstr(now(s)->reason, "make a sandbox"));
}

static bool runs(struct site *s)
{
    size_t it = 0;
    struct fake_agent *a = map_next(&s->w->agents, &it);
    return a && a->launches;
}

static void one_that_is_cancelled_fails(void **state)
{
    struct site *s = *state;
    BEGIN(s, "cat");
    WAIT(s->w, runs(s));
    struct err err;
    assert_int_equal(builder_cancel(s->b, &test_actor, s->id, &err), 0);
    assert_int_equal(end_of(s), TEMPLATE_FAILED);
    assert_string_equal(now(s)->reason, "the build was cancelled");
    assert_non_null(strstr(recorded(s, EVENT_TEMPLATE_CANCEL), s->id));
    assert_non_null(
        strstr(recorded(s, EVENT_TEMPLATE_FAILED), "\"step\":\"1\",\"reason\":\"the build was cancelled\""));
    assert_int_equal(world_count_events(s->w, SERVICE_LOG_ID, EVENT_TEMPLATE_BUILT), 0);
    assert_int_equal(builder_cancel(s->b, &test_actor, s->id, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
}

static void one_whose_sandbox_dies_fails(void **state)
{
    struct site *s = *state;
    size_t it = 0;
    BEGIN(s, "cat");
    WAIT(s->w, runs(s));
    world_end_agent(s->w, map_next(&s->w->agents, &it), SUP_CAUSE_OOM);
    assert_int_equal(end_of(s), TEMPLATE_FAILED);
    assert_non_null(strstr(now(s)->reason, "ended (oom)"));
    BEGIN(s, "flag"); /* and the next one is none the worse */
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(world_count_events(s->w, SERVICE_LOG_ID, EVENT_TEMPLATE_BUILD), 2);
    assert_non_null(strstr(recorded(s, EVENT_TEMPLATE_BUILD), "\"from\":\"base\",\"steps\":1"));
    assert_non_null(strstr(recorded(s, EVENT_TEMPLATE_BUILT), s->template_id));
}

static void one_waits_for_the_other(void **state)
{
    struct site *s = *state;
    char first[ID_UUID_LEN + 1];
    BEGIN(s, "cat");
    memcpy(first, s->id, sizeof(first));
    WAIT(s->w, runs(s));
    BEGIN(s, "flag");
    world_turns(s->w, 100);
    assert_int_equal(s->w->creates, 1);
    struct err err;
    assert_int_equal(builder_cancel(s->b, &test_actor, first, &err), 0);
    assert_int_equal(end_of(s), TEMPLATE_READY);
}

static void but_not_for_another_tenants(void **state)
{
    static const struct actor owner = {.name = "test", .who = PRINCIPAL_OWNER};
    struct site *s = *state;
    struct template_registry *r = core_templates(s->w->core);
    struct actor other = {.name = "other", .who.scope = SCOPE_ADMIN};
    const struct template_build *b;
    char first[ID_UUID_LEN + 1], theirs[ID_UUID_LEN + 1];
    struct err err;
    assert_int_equal(tenant_create(s->w->core, &owner, STR("other"), NULL, &err), 0);
    assert_int_equal(tenant_find(s->w->core, STR("other"), &other.who.tenant, &err), 0);
    other.who.view = other.who.tenant;
    BEGIN(s, "cat");
    memcpy(first, s->id, sizeof(first));
    WAIT(s->w, runs(s));
    BEGIN(s, "cat");

    const struct str flag = STR("flag");
    const struct build_step step = {.type = BUILD_RUN, .args = &flag, .n_args = 1};
    const struct template_request q = {
        .tenant = other.who.tenant, .name = STR("app"), .cpu_milli = 1000, .memory_bytes = 1 << 28};
    assert_int_equal(template_request(r, &q, &b, &err), 0);
    memcpy(theirs, b->id, sizeof(theirs));
    const struct build_spec spec = {.template_ref = "base", .steps = &step, .n_steps = 1};
    assert_int_equal(builder_start(s->b, &other, theirs, &spec, &err), 0);
    WAIT(s->w, template_build_find(r, TENANT_ANY, str_of(theirs))->status >= TEMPLATE_READY);
    assert_int_equal(template_build_find(r, TENANT_ANY, str_of(theirs))->status, TEMPLATE_READY);
    assert_int_equal(s->w->creates, 2);
    assert_int_equal(builder_cancel(s->b, &test_actor, s->id, &err), 0);
    assert_int_equal(builder_cancel(s->b, &test_actor, first, &err), 0);
    assert_int_equal(end_of(s), TEMPLATE_FAILED);
}

static void what_is_asked_for_takes_the_tenants_memory(void **state)
{
    struct site *s = *state;
    struct charge all = {.core = s->w->core, .tenant = TENANT_DEFAULT};
    const struct template_request q = {.name = STR("app"), .cpu_milli = 1000, .memory_bytes = 1 << 28};
    const struct str flag = STR("flag");
    const struct build_step step = {.type = BUILD_RUN, .args = &flag, .n_args = 1};
    const struct build_spec spec = {.template_ref = "base", .steps = &step, .n_steps = 1};
    const struct template_build *b;
    struct err err;
    assert_int_equal(template_request(core_templates(s->w->core), &q, &b, &err), 0);
    memcpy(s->id, b->id, sizeof(s->id));
    assert_int_equal(charge_memory(&all, 256 << 20, &err), 0);
    assert_int_equal(builder_start(s->b, &test_actor, s->id, &spec, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    charge_release(&all);
    assert_int_equal(builder_start(s->b, &test_actor, s->id, &spec, &err), 0);
    all.core = s->w->core;
    assert_int_equal(charge_memory(&all, 256 << 20, &err), -1);
    assert_int_equal(end_of(s), TEMPLATE_READY);
    assert_int_equal(charge_memory(&all, 256 << 20, &err), 0);
    charge_release(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_step_is_a_layer_and_is_found_again, setup, teardown),
        cmocka_unit_test_setup_teardown(variables_are_found_again_like_other_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_said_comes_from_below, setup, teardown),
        cmocka_unit_test_setup_teardown(from_is_a_template_here_or_an_image, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_asked_for_takes_the_tenants_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(a_step_that_fails_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_is_cancelled_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(one_whose_sandbox_dies_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(one_waits_for_the_other, setup, teardown),
        cmocka_unit_test_setup_teardown(but_not_for_another_tenants, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

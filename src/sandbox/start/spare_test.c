/* SPDX-License-Identifier: Apache-2.0 */
/* Templates with start commands: what a create waits for, and sandboxes that are there before it. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/network/network.h"
#include "sandbox/templates.h"
#include "sandbox/test_world.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static struct world_outcome outcomes[4];

static struct world_outcome *create(struct world *w, int at, const struct sandbox_spec *with, const char *ref)
{
    struct world_outcome *o = &outcomes[at];
    struct sandbox_spec spec = {.timeout_ms = 60000, .allow_internet = true};
    struct err err;
    *o = (struct world_outcome){0};
    if (with)
        spec = *with;
    spec.template_ref = str_of(ref);
    if (sandbox_create(w->core, &test_actor, &spec, world_on_done, o, &err) < 0)
        fail_msg("create: %s", err.msg);
    assert_int_equal(o->calls, 0);
    return o;
}

static size_t ready_spares(struct world *w)
{
    size_t n = 0, it = 0;
    for (struct sandbox *sb; (sb = map_next(&w->core->by_id, &it));)
        n += sb->is_spare && sb->info.state == SANDBOX_RUNNING;
    return n;
}

/* Nobody hears of it before it is ready, and why not when it can't be. */
static void launched(void **state)
{
    struct world *w = *state;
    world_template(w, "web", "cat", "flag");
    struct world_outcome *o = create(w, 0, NULL, "web");
    world_turns(w, 100);
    assert_int_equal(o->calls, 0);
    assert_null(sandbox_only(w->core, &test_actor.who)); /* nobody finds it, and nobody can do anything to it */
    size_t it = 0;
    struct sandbox *young = map_next(&w->core->by_id, &it);
    struct err err;
    assert_int_equal(sandbox_pause(young, &test_actor, false, world_on_done, o, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    w->is_flag_up = true;
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_OK);
    assert_true(world_agent(w, o->sb)->launches >= 2);
    assert_null(o->sb->launch);
    /* By itself one more, for the next. */
    WAIT(w, ready_spares(w) == 1);
    assert_int_equal(sandbox_count(w->core), 1);

    world_template(w, "broken", "count", "flag");
    w->is_flag_up = false;
    o = create(w, 0, NULL, "broken");
    WAIT(w, o->calls);
    assert_null(o->sb);
    assert_non_null(strstr(o->err.msg, "start command failed"));
    assert_int_equal(o->err.code, ERR_FAILED_PRECONDITION); /* it would fail again */
    world_template(w, "plain", "cat", NULL);
    o = create(w, 0, NULL, "plain");
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_OK);

    /* What ends it, ends the wait. */
    o = create(w, 1, NULL, "web");
    WAIT(w, o->calls); /* a spare */
    o = create(w, 1, NULL, "web");
    WAIT(w, w->creates && w->core->n_creating);
    world_turns(w, 50);
    assert_int_equal(o->calls, 0);
    world_close(w);
    assert_int_equal(o->calls, 1);
    assert_int_equal(o->err.code, ERR_UNAVAILABLE);
}

static void taken(void **state)
{
    struct world *w = *state;
    struct err err;
    w->is_flag_up = true;
    world_template(w, "web", "cat", "flag");
    if (core_warm_set(w->core, &test_actor, STR("web"), 2, 0, &err) < 0)
        fail_msg("warm: %s", err.msg);
    WAIT(w, ready_spares(w) == 2);
    assert_int_equal(sandbox_count(w->core), 0);
    struct sandbox *spare = NULL;
    size_t it = 0;
    for (struct sandbox *sb; (sb = map_next(&w->core->by_id, &it));)
        if (sb->is_spare)
            spare = sb;
    assert_non_null(spare);
    assert_null(sandbox_find(w->core, str_of(spare->info.id)));
    assert_null(sandbox_only(w->core, &test_actor.who));

    struct pair metadata[] = {{STR("k"), STR("v")}};
    struct sandbox_spec spec = {.timeout_ms = 70000,
                                .secure = true,
                                .private_traffic = true,
                                .auto_resume = true,
                                .allow_internet = true,
                                .metadata = metadata,
                                .n_metadata = 1};
    unsigned creates;
    usec_t before = clock_real();
    struct world_outcome *o = create(w, 0, &spec, "web");
    WAIT(w, o->calls);
    const struct sandbox_info *i = sandbox_info(o->sb);
    assert_int_equal(sandbox_count(w->core), 1);
    assert_ptr_equal(sandbox_find(w->core, str_of(i->id)), o->sb);
    assert_false(i->hidden);
    assert_true(i->started >= before);
    assert_in_range(i->end_at, i->started + 70000 * USEC_PER_MS, clock_real() + 70000 * USEC_PER_MS);
    assert_int_equal(strlen(i->access_token), 40);
    assert_int_equal(strlen(i->traffic_token), 40);
    assert_true(i->auto_resume);
    assert_int_equal(i->n_metadata, 1);
    assert_string_equal(i->template_alias, "web");
    assert_int_equal(world_count_events(w, i->id, EVENT_SANDBOX_CREATE), 2);
    assert_non_null(strstr(world_event_data(w, i->id, EVENT_SANDBOX_CREATE), "\"spare\":true"));
    WAIT(w, ready_spares(w) == 2); /* filled up */

    /* Another policy is in force before anybody hears of it. */
    json_t *policy = json_loads("{\"rules\":[{\"allow\":\"example.com\"}]}", 0, NULL);
    struct network_spec network = {.policy = policy};
    spec.network = &network;
    o = create(w, 0, &spec, "web");
    json_decref(policy);
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_OK);
    assert_non_null(strstr(egress_policy(w, sandbox_info(o->sb)->id), "example.com"));
    spec.network = NULL;
    spec.allow_internet = false;
    WAIT(w, ready_spares(w) == 2);
    o = create(w, 0, &spec, "web");
    WAIT(w, o->calls);
    assert_non_null(strstr(egress_policy(w, sandbox_info(o->sb)->id), "\"policy\":{\"default\":\"deny\"}"));

    /* Who asks for something else gets something else. */
    WAIT(w, ready_spares(w) == 2);
    spec.memory_bytes = 99 << 20;
    creates = w->creates;
    o = create(w, 0, &spec, "web");
    WAIT(w, o->calls);
    assert_int_equal(w->creates, creates + 1);

    /* The record of the one that was taken is a sandbox's like any; spares of a worker go with it. */
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, i->id, sizeof(id));
    world_close(w);
    world_open(w);
    struct sandbox *sb = sandbox_find(w->core, str_of(id));
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    assert_int_equal(sandbox_info(sb)->n_metadata, 1);
    assert_int_equal(sandbox_count(w->core), 4);
    WAIT(w, ready_spares(w) == 2 && map_count(&w->agents) == 6);
    assert_int_equal(core_warm_set(w->core, &test_actor, STR("web"), 0, 0, &err), 0);
    WAIT(w, map_count(&w->agents) == 4);
    assert_int_equal(core_warm_set(w->core, &test_actor, STR("web"), 1000, 0, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
}

/* Another build of it: those of the one before are of no use. */
static void rebuilt(void **state)
{
    struct world *w = *state;
    struct err err;
    w->is_flag_up = true;
    world_template(w, "web", "cat", "flag");
    assert_int_equal(core_warm_set(w->core, &test_actor, STR("web"), 1, 0, &err), 0);
    WAIT(w, ready_spares(w) == 1);
    world_template(w, "web", "cat", "flag");
    WAIT(w, w->kills == 1 && ready_spares(w) == 1);
    /* No room: they go. */
    w->create_error = ERR_RESOURCE_EXHAUSTED;
    struct world_outcome *o = create(w, 0, NULL, "base");
    WAIT(w, o->calls && w->kills == 2);
    assert_int_equal(ready_spares(w), 0);
}

/* Two files on the same layer. */
static void of_files(void **state)
{
    struct world *w = *state;
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/templates/web.conf", w->dir->path);
    assert_int_equal(
        fd_write_file(AT_FDCWD, path,
                      STR("id = web-1\nalias = web\nstart_cmd = cat\n"
                          "layer = sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"),
                      0600),
        0);
    struct world_outcome *o = create(w, 0, NULL, "web");
    WAIT(w, o->calls && ready_spares(w) == 1);
    o = create(w, 0, NULL, "web");
    WAIT(w, o->calls);
    assert_non_null(strstr(world_event_data(w, sandbox_info(o->sb)->id, EVENT_SANDBOX_CREATE), "\"spare\":true"));
    assert_int_equal(unlink(path), 0);
}

/* What its start command sees is what was asked for: a spare's has begun without it. And the time that was asked for
 * begins when it is there. */
static void a_start_command_sees_what_was_asked_for(void **state)
{
    struct world *w = *state;
    struct pair envs[] = {{STR("A"), STR("1")}};
    struct sandbox_spec spec = {.timeout_ms = 60000, .envs = envs, .n_envs = 1};
    w->is_flag_up = true;
    world_template(w, "web", "cat", "flag");
    struct world_outcome *o = create(w, 0, NULL, "web");
    WAIT(w, o->calls && ready_spares(w) == 1);
    o = create(w, 0, &spec, "web");
    WAIT(w, o->calls);
    const struct sandbox_info *i = sandbox_info(o->sb);
    assert_null(strstr(world_event_data(w, i->id, EVENT_SANDBOX_CREATE), "\"spare\""));
    assert_non_null(strstr(world_agent(w, o->sb)->last_env, "A=1"));
    assert_int_equal(ready_spares(w), 1);

    /* Its start command takes its time. */
    w->is_flag_up = false;
    o = create(w, 0, &spec, "web");
    world_turns(w, 300);
    assert_int_equal(o->calls, 0);
    usec_t before = clock_real();
    w->is_flag_up = true;
    WAIT(w, o->calls);
    assert_true(sandbox_info(o->sb)->end_at >= before + 60000 * USEC_PER_MS);
}

/* Without a start command, when that was asked for; also by another worker. */
static void plain_ones(void **state)
{
    struct world *w = *state;
    struct err err;
    struct world_outcome *o = create(w, 0, NULL, "base");
    WAIT(w, o->calls);
    world_turns(w, 50);
    assert_int_equal(w->creates, 1);
    assert_int_equal(core_warm_set(w->core, &test_actor, STR("base"), 3, 0, &err), 0);
    WAIT(w, ready_spares(w) == 3);
    o = create(w, 0, NULL, "base");
    WAIT(w, o->calls);
    assert_non_null(strstr(world_event_data(w, sandbox_info(o->sb)->id, EVENT_SANDBOX_CREATE), "\"spare\":true"));
    world_close(w);
    world_open(w);
    WAIT(w, ready_spares(w) == 3 && map_count(&w->agents) == 5);
    assert_int_equal(core_warm_set(w->core, &test_actor, STR("base"), 0, 0, &err), 0);
    WAIT(w, map_count(&w->agents) == 2);
    assert_int_equal(sandbox_count(w->core), 2);
}

static void on_fork(void *ctx, size_t i, struct sandbox *fork, const struct err *err)
{
    if (i == 0)
        world_on_done(ctx, fork, err);
}

/* A fork is launched, too; its processes are not part of the clone. */
static void forks_are_launched(void **state)
{
    struct world *w = *state;
    struct err err;
    w->is_flag_up = true;
    world_template(w, "web", "cat", "flag");
    struct world_outcome *o = create(w, 0, NULL, "web"), *f = &outcomes[1];
    WAIT(w, o->calls);
    *f = (struct world_outcome){0};
    assert_int_equal(sandbox_fork(o->sb, &test_actor, false, 1, 60000, on_fork, f, &err), 0);
    WAIT(w, f->calls);
    assert_non_null(f->sb);
    assert_int_equal(world_agent(w, f->sb)->launches, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(launched, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(taken, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(rebuilt, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(of_files, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(plain_ones, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_start_command_sees_what_was_asked_for, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(forks_are_launched, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

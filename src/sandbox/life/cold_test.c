/* SPDX-License-Identifier: Apache-2.0 */
/* A start on files that were kept: volumes and start command come again, and nobody is told before; also when the
 * worker dies meanwhile. */
#include "sandbox/test_world.h"
#include "sandbox/volume/volumes.h"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

static enum sandbox_state state_of(const struct sandbox *sb)
{
    return sandbox_info(sb)->state;
}

static struct sandbox *web(struct world *w, const char *start, const struct sandbox_spec *with)
{
    struct sandbox_spec spec = {.timeout_ms = 60000, .auto_resume = true};
    static struct world_outcome o;
    struct err err;
    o = (struct world_outcome){0};
    if (with)
        spec = *with;
    spec.template_ref = STR("web");
    w->is_flag_up = true;
    world_template(w, "web", start, "flag");
    if (sandbox_create(w->core, &test_actor, &spec, world_on_done, &o, &err) < 0)
        fail_msg("create: %s", err.msg);
    WAIT(w, o.calls);
    assert_non_null(o.sb);
    return o.sb;
}

struct waking {
    struct sandbox_wake wake;
    unsigned calls;
};

static void on_woken(struct sandbox_wake *wake, struct sandbox *sb, const struct err *err)
{
    assert_null(err);
    assert_int_equal(state_of(sb), SANDBOX_RUNNING);
    container_of(wake, struct waking, wake)->calls++;
}

static void start_command_runs_again(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = web(w, "cat", NULL);
    struct world_outcome o = {0};
    struct waking wake = {.wake.fn = on_woken};
    struct exec_spec spec = {.cmd = STR("echo")};
    struct follow *f;
    struct err err;
    world_pause(w, sb, true);
    world_resume(w, sb, NULL);
    assert_int_equal(world_agent(w, sb)->launches, 2); /* it went on */

    world_pause(w, sb, false);
    w->is_flag_up = false;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, sb->launch && world_agent(w, sb)->launches > 2);
    assert_int_equal(o.calls, 0);
    assert_int_equal(state_of(sb), SANDBOX_RESUMING);
    assert_int_equal(exec_start(sb, &test_actor, &spec, &(struct exec_ops){0}, NULL, &f, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(sandbox_wake(sb, &test_actor, &wake.wake, &err), 0);
    world_turns(w, 50);
    assert_int_equal(o.calls + wake.calls, 0);
    w->is_flag_up = true;
    WAIT(w, o.calls && wake.calls);
    assert_int_equal(o.err.code, ERR_OK);
    assert_null(sb->launch);
    assert_null(strstr(world_event_data(w, sandbox_info(sb)->id, EVENT_SANDBOX_RESUMED), "start_failed"));

    /* Another worker knows the command, and does not run it where it runs. */
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    unsigned launches = world_agent(w, sb)->launches;
    sb = world_restart(w, id);
    world_turns(w, 50);
    assert_int_equal(state_of(sb), SANDBOX_RUNNING);
    assert_int_equal(world_agent(w, sb)->launches, launches);
    world_pause(w, sb, false);
    sb = world_restart(w, id);
    world_resume(w, sb, NULL);
    assert_int_equal(world_agent(w, sb)->launches, 2);
}

/* Who can't start his server any more must still get at his files. */
static void start_command_fails(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = web(w, "flag", NULL);
    world_pause(w, sb, false);
    w->is_flag_up = false;
    world_resume(w, sb, NULL);
    const char *said = world_event_data(w, sandbox_info(sb)->id, EVENT_SANDBOX_RESUMED);
    assert_non_null(strstr(said, "\"start_failed\":\"the template's start command failed\""));
    /* It is said for as long as it is so: after a pause with its memory, and by another worker. */
    world_pause(w, sb, true);
    world_resume(w, sb, NULL);
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    assert_string_equal(sandbox_info(sb)->start_failed, "the template's start command failed");
    sb = world_restart(w, id);
    assert_string_equal(sandbox_info(sb)->start_failed, "the template's start command failed");
    world_turns(w, 50);
    world_pause(w, sb, false);
    assert_null(sandbox_info(sb)->start_failed);
    sb = world_restart(w, id);
    assert_null(sandbox_info(sb)->start_failed);
    w->is_flag_up = true;
    world_resume(w, sb, NULL);
    assert_null(strstr(world_event_data(w, sandbox_info(sb)->id, EVENT_SANDBOX_RESUMED), "start_failed"));
    assert_null(sandbox_info(sb)->start_failed);
}

static void disturbed_while_it_starts(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = web(w, "cat", NULL);
    struct world_outcome o = {0}, killed = {0};
    struct err err;
    world_pause(w, sb, false);
    w->is_flag_up = false;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, sb->launch);
    fake_hang_up(world_agent(w, sb));
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_null(sb->launch);
    assert_int_equal(map_count(&w->kept), 1);
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, sb->launch);
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &killed, &err), 0);
    assert_null(sb->launch);
    WAIT(w, killed.calls && state_of(sb) == SANDBOX_ENDED);
    assert_int_equal(o.calls, 2);
    assert_int_equal(o.err.code, ERR_UNAVAILABLE);
}

/* As coved says when it has ended by then. */
static void gone_when_its_start_is_done(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = web(w, "cat", NULL);
    struct world_outcome o = {0};
    struct err err;
    unsigned resumes = w->resumes;
    world_pause(w, sb, false);
    w->resume_error = ERR_ABORTED;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, ERR_ABORTED);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    assert_int_equal(map_count(&w->kept), 1);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_SANDBOX_RESUMED), 0);
    w->resume_error = ERR_OK;
    world_resume(w, sb, NULL);
    assert_int_equal(w->resumes, resumes + 2);
}

/* The sandbox stays as it was, and the next start is not taken for this one. */
static void no_box_for_saved_memory(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = web(w, "cat", NULL);
    struct world_outcome o = {0};
    struct err err;
    world_pause(w, sb, false);
    sb->info.has_memory = sb->info.on_disk = true;
    w->create_error = ERR_DATA_LOSS;
    unsigned pauses = w->pauses;
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, ERR_DATA_LOSS);
    assert_int_equal(state_of(sb), SANDBOX_PAUSED);
    w->create_error = ERR_OK;
    world_resume(w, sb, &(struct sandbox_resume){.cold = true});
    assert_int_equal(state_of(sb), SANDBOX_RUNNING);
    assert_int_equal(w->pauses, pauses);
}

static void on_volume(void *ctx, const struct volume *v, const struct err *err)
{
    assert_null(err);
    assert_non_null(v);
    ++*(unsigned *)ctx;
}

/* It is put back and started from the beginning; all of it is there then, once. */
static void the_worker_dies_meanwhile(void **state)
{
    struct world *w = *state;
    char id[ID_SANDBOX_LEN + 1], mounted[256];
    struct err err;
    unsigned made = 0;
    assert_int_equal(volume_make(w->core, &test_actor, STR("a"), 0, on_volume, &made, &err), 0);
    assert_int_equal(volume_make(w->core, &test_actor, STR("b"), 0, on_volume, &made, &err), 0);
    WAIT(w, made == 2);
    struct volume_mount mounts[] = {{STR("a"), STR("/a"), .read_only = false},
                                    {STR("b"), STR("/b"), .read_only = true}};
    struct sandbox_spec spec = {.timeout_ms = 60000, .mounts = mounts, .n_mounts = 2};
    struct sandbox *sb = web(w, "cat", &spec);
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    (void)snprintf(mounted, sizeof(mounted), "%s", world_agent(w, sb)->mounted);
    for (int i = 0; i < 5; i++) {
        struct world_outcome o = {0};
        world_pause(w, sb, i == 4);
        if (i < 2)
            w->mount_silence = 1;
        else
            w->is_flag_up = false;
        assert_int_equal(world_resume_begin(sb, &(struct sandbox_resume){.cold = i == 4}, &o, &err), 0);
        if (i < 2)
            WAIT(w, !w->mount_silence);
        else
            WAIT(w, sb->launch && world_agent(w, sb)->launches >= 2);
        w->pause_error = i == 3 ? ERR_RESOURCE_EXHAUSTED : 0;
        world_close(w);
        assert_int_equal(o.calls, 1);
        w->is_flag_up = true;
        world_open(w);
        sb = sandbox_find(w->core, str_of(id));
        assert_non_null(sb);
        assert_int_not_equal(state_of(sb), SANDBOX_RUNNING);
        if (i == 3) { /* its files can't be put away for now: it stays paused, and comes when it can */
            WAIT(w, state_of(sb) == SANDBOX_PAUSED);
            sb = world_restart(w, id);
            WAIT(w, state_of(sb) == SANDBOX_PAUSED);
            w->pause_error = 0;
            world_resume(w, sb, NULL);
        }
        WAIT(w, state_of(sb) == SANDBOX_RUNNING);
        assert_string_equal(world_agent(w, sb)->mounted, mounted);
        assert_int_equal(world_agent(w, sb)->launches, 2);
        assert_int_equal(map_count(&w->kept), 0);
        assert_true(sandbox_info(sb)->end_at > clock_real());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(start_command_runs_again, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(start_command_fails, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(disturbed_while_it_starts, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(gone_when_its_start_is_done, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(no_box_for_saved_memory, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(the_worker_dies_meanwhile, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

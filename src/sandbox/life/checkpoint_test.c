/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/rules.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct sandbox *checkpointed(struct world *w)
{
    return world_sandbox(w, &(struct sandbox_spec){.timeout_ms = 600000, .checkpoint = 1});
}

static size_t count(const struct sandbox *sb)
{
    size_t n;
    (void)checkpoint_list(sb, &n);
    return n;
}

/* An action that may change files, as far as the record goes, and its end. Returns that one's seq. */
static uint64_t act(struct world *w, struct sandbox *sb)
{
    uint64_t seq;
    struct err err;
    assert_int_equal(action_begin(sb, &test_actor, EVENT_EXEC_START, STR("{\"cmd\":\"x\"}"), &seq, &err), 0);
    action_observe(sb, seq, EVENT_EXEC_EXIT, EVENT_CLAIMED, STR("{\"exit_code\":0}"));
    uint64_t last = event_newest(w->events, sb->info.id);
    struct world_outcome settled = {0};
    if (checkpoint_await(sb, world_on_done, &settled))
        WAIT(w, settled.calls == 1);
    return last;
}

static void one_for_each_state_of_the_files(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = checkpointed(w);
    uint64_t first = act(w, sb), second = act(w, sb);
    assert_int_equal(count(sb), 3);
    assert_int_equal(checkpoint_find(sb, first)->seq, first);
    assert_int_equal(checkpoint_find(sb, second - 1)->seq, first);
    assert_int_equal(checkpoint_find(sb, UINT64_MAX)->seq, second);
    assert_null(checkpoint_find(sb, 1));
    w->files_stay = true;
    (void)act(w, sb);
    assert_int_equal(count(sb), 3);
    w->files_stay = false;
    w->snapshot_error = ERR_RESOURCE_EXHAUSTED;
    (void)act(w, sb);
    assert_int_equal(count(sb), 3);
    assert_non_null(strstr(world_event_data(w, sb->info.id, EVENT_SANDBOX_CHECKPOINTED), "failed"));
    w->snapshot_error = ERR_OK;
    for (int i = 0; i < 2 * CHECKPOINTS_MAX; i++)
        (void)act(w, sb);
    assert_int_equal(count(sb), CHECKPOINTS_MAX);
    assert_true(checkpoint_find(sb, first - 1) && checkpoint_find(sb, first - 1)->seq < first);
}

/* What its start does to it, as when a certificate is still being installed while it runs. */
static void none_of_what_sets_it_up(void **state)
{
    static const struct actor own = {.name = "network", .is_own = true, .sets_up = true};
    struct world *w = *state;
    struct sandbox *sb = checkpointed(w);
    uint64_t seq;
    struct err err;
    assert_int_equal(action_begin(sb, &own, EVENT_FILE_WRITE, STR("{\"path\":\"/c\"}"), &seq, &err), 0);
    action_observe(sb, seq, EVENT_FILE_DONE, EVENT_CLAIMED, STR("{}"));
    struct world_outcome settled = {0};
    assert_false(checkpoint_await(sb, world_on_done, &settled));
    assert_int_equal(count(sb), 0);
    (void)act(w, sb);
    assert_int_equal(count(sb), 2);
    assert_null(checkpoint_find(sb, seq));
}

static void what_failed_is_paused(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = checkpointed(w);
    struct world_outcome o = {0};
    struct err err;
    uint64_t seq = act(w, sb);
    assert_int_equal(sandbox_rewind(sb, &test_actor, 1, world_on_done, &o, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    w->rewind_error = ERR_NOT_FOUND;
    assert_int_equal(sandbox_rewind(sb, &test_actor, seq, world_on_done, &o, &err), 0);
    assert_int_equal(sandbox_rewind(sb, &test_actor, seq, world_on_done, &o, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    WAIT(w, o.calls == 1);
    assert_null(o.sb);
    assert_int_equal(sb->info.state, SANDBOX_PAUSED);
    w->rewind_error = ERR_OK;
    world_resume(w, sb, NULL);
    assert_int_equal(w->rewinds, 1);
    o = (struct world_outcome){0};
    assert_int_equal(sandbox_rewind(sb, &test_actor, seq, world_on_done, &o, &err), 0);
    WAIT(w, o.calls == 1);
    assert_ptr_equal(o.sb, sb);
    assert_int_equal(sb->info.state, SANDBOX_RUNNING);
    assert_int_equal(world_count_events(w, sb->info.id, EVENT_SANDBOX_REWOUND), 1);
}

static void another_worker_knows_them(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = checkpointed(w);
    char id[ID_SANDBOX_LEN + 1];
    uint64_t seq = act(w, sb);
    memcpy(id, sb->info.id, sizeof(id));
    const struct checkpoint before = *checkpoint_find(sb, seq);
    sb = world_restart(w, id);
    assert_int_equal(count(sb), 2);
    assert_string_equal(checkpoint_find(sb, seq)->layer, before.layer);
    assert_int_equal(checkpoint_mode(sb), 1);
}

static void modes(void **state)
{
    static const struct {
        const char *text;
        int mode;
    } good[] = {{"action", 1}, {"7", 7}, {"risk", CHECKPOINT_RISK}, {"off", CHECKPOINT_OFF}};
    static const char *const bad[] = {"", "0", "-1", "1000001", "Action", "every"};
    char text[CHECKPOINT_TEXT_MAX];
    int mode;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(checkpoint_mode_parse(str_of(good[i].text), &mode), 0);
        assert_int_equal(mode, good[i].mode);
        assert_true(str_eqc(checkpoint_mode_format(mode, text), good[i].text));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(checkpoint_mode_parse(str_of(bad[i]), &mode), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_for_each_state_of_the_files, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(none_of_what_sets_it_up, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_failed_is_paused, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(another_worker_knows_them, world_setup, world_teardown),
        cmocka_unit_test(modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

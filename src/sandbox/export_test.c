/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "sandbox/export.h"
#include "sandbox/export_internal.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void traceparents(void **state)
{
    static const struct {
        const char *text;
        bool is_good;
    } cases[] = {
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", true},
        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false},
        {"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        {"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736\"00f067aa0ba902b7-01", false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(event_is_traceparent(str_of(cases[i].text)), cases[i].is_good);
    char with_nul[EVENT_TRACEPARENT_LEN];
    memcpy(with_nul, cases[0].text, sizeof(with_nul));
    with_nul[10] = '\0';
    assert_false(event_is_traceparent(str_n(with_nul, sizeof(with_nul))));
}

static void a_trace_and_an_explanation_are_recorded_and_nothing_else_sees_it(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct actor actor = test_actor;
    uint64_t seq;
    struct err err;
    actor.trace = STR("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    assert_int_equal(action_begin(sb, &actor, EVENT_FILE_LIST, STR("{\"path\":\"/\"}"), &seq, &err), 0);
    (void)world_count_events(w, sb->info.id, EVENT_FILE_LIST);
    assert_string_equal(world_event_data(w, sb->info.id, EVENT_FILE_LIST),
                        "{\"path\":\"/\",\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"}");
    assert_int_equal(action_begin(sb, &actor, EVENT_FILE_STAT, STR("{}"), &seq, &err), 0);
    (void)world_count_events(w, sb->info.id, EVENT_FILE_STAT);
    assert_string_equal(world_event_data(w, sb->info.id, EVENT_FILE_STAT),
                        "{\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"}");
    actor.explanation = STR("as \"asked\"\n");
    assert_int_equal(action_begin(sb, &actor, EVENT_FILE_READ, STR("{}"), &seq, &err), 0);
    (void)world_count_events(w, sb->info.id, EVENT_FILE_READ);
    assert_string_equal(world_event_data(w, sb->info.id, EVENT_FILE_READ),
                        "{\"explanation\":\"as \\\"asked\\\"\\n\",\"traceparent\":\"00-"
                        "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"}");
}

static void figures_are_metrics(void **state)
{
    struct world *w = *state;
    (void)world_sandbox(w, NULL);
    json_t *scope = export_metrics(w->core);
    AUTO_FREE char *text = json_dumps(scope, JSON_COMPACT);
    json_decref(scope);
    assert_non_null(strstr(text, "{\"name\":\"cove_sandboxes\",\"gauge\":"));
    assert_non_null(strstr(text, "{\"key\":\"state\",\"value\":{\"stringValue\":\"running\"}}"));
    assert_null(strstr(text, "_bucket"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traceparents),
        cmocka_unit_test_setup_teardown(a_trace_and_an_explanation_are_recorded_and_nothing_else_sees_it, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(figures_are_metrics, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

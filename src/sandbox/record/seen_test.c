/* SPDX-License-Identifier: Apache-2.0 */
/* What coved tells in one message is one event for each sandbox and kind, of what fits in; floods are counted. */
#include "sandbox/record/record.h"
#include "sandbox/test_world.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void see(struct sandbox *sb, enum sup_seen_kind kind, unsigned pid, struct str argv)
{
    struct sup_seen s = {.kind = kind, .at = 1795357832000000 + pid, .host_pid = 1000 + pid, .pid = pid, .uid = 1000};
    (void)snprintf(s.id, sizeof(s.id), "%s", sb->info.id);
    memcpy(s.text, argv.p, argv.n);
    s.argv = s.argv_bytes = kind == SUP_SEEN_EXEC ? (uint32_t)argv.n : 0;
    s.path = kind == SUP_SEEN_WRITE ? (uint32_t)argv.n : 0;
    seen_record(sb->core, &s);
}

/* How many things the events of this kind tell of, and in `ret_events` how many these are. */
struct tally {
    enum event_kind kind;
    const char *list;
    size_t things, events;
    json_int_t last; /* pid */
};

static bool tally_event(const struct event *e, void *ctx)
{
    struct tally *t = ctx;
    json_t *one, *data = json_loadb(e->data.p, e->data.n, 0, NULL);
    size_t i;
    assert_non_null(data);
    assert_null(json_object_get(data, "truncated"));
    if (e->kind == t->kind) {
        t->events++;
        t->things += json_array_size(json_object_get(data, t->list));
        json_array_foreach(json_object_get(data, t->list), i, one)
        {
            json_int_t pid = json_integer_value(json_object_get(one, "pid"));
            assert_true(pid >= t->last);
            t->last = pid;
        }
    }
    json_decref(data);
    return true;
}

static struct tally tally(struct world *w, const struct sandbox *sb, enum event_kind kind, const char *list)
{
    struct tally t = {.kind = kind, .list = list};
    struct err err;
    (void)world_count_events(w, sb->info.id, kind); /* commits */
    assert_true(event_read(w->events, sb->info.id, 0, 100000, tally_event, &t, &err) > 0);
    return t;
}

static void a_message_is_one_event_for_each_sandbox_and_kind(void **state)
{
    struct world *w = *state;
    struct sandbox *one = world_sandbox(w, NULL), *other = world_sandbox(w, NULL);
    for (unsigned pid = 1; pid <= 3; pid++) {
        see(one, SUP_SEEN_EXEC, pid, str_n("sh\0-c\0", 6));
        see(other, SUP_SEEN_WRITE, 0, STR("/a"));
    }
    see(one, SUP_SEEN_EXIT, 3, STR(""));
    see(one, SUP_SEEN_EXEC, 4, str_n("ls\0", 3));
    assert_int_equal(tally(w, one, EVENT_PROC_EXEC, "programs").things, 3); /* those before another kind */
    seen_record(w->core, NULL);
    const struct tally execs = tally(w, one, EVENT_PROC_EXEC, "programs");
    assert_int_equal(execs.things, 4);
    assert_int_equal(execs.events, 2);
    assert_int_equal(tally(w, one, EVENT_PROC_EXIT, "ended").things, 1);
    assert_string_equal(world_event_data(w, one->info.id, EVENT_PROC_EXEC),
                        "{\"programs\":[{\"at\":1795357832000004,\"pid\":4,\"parent\":0,\"host_pid\":1004,\"uid\":1000,"
                        "\"argv\":[\"ls\"],\"program\":\"\"}]}");
    const struct tally files = tally(w, other, EVENT_FILE_WRITTEN, "files");
    assert_int_equal(files.things, 3);
    assert_int_equal(files.events, 1);
    assert_int_equal(tally(w, other, EVENT_PROC_EXEC, "programs").things, 0);
}

static void more_sandboxes_than_batches(void **state)
{
    struct world *w = *state;
    struct sandbox *all[SEEN_BATCHES + 4];
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        all[i] = world_sandbox(w, NULL);
    for (unsigned pid = 1; pid <= 2; pid++)
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
            see(all[i], SUP_SEEN_EXEC, pid, str_n("sh\0", 3));
    seen_record(w->core, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        assert_int_equal(tally(w, all[i], EVENT_PROC_EXEC, "programs").things, 2);
}

/* Whatever room the limit still has: they are not looked at, so nobody knows more of them. */
static void what_is_only_counted_is_suppressed(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct sup_seen more = {.kind = SUP_SEEN_MORE, .lost = 1600};
    struct err err;
    (void)snprintf(more.id, sizeof(more.id), "%s", sb->info.id);
    see(sb, SUP_SEEN_WRITE, 0, STR("/a"));
    seen_record(w->core, &more);
    seen_record(w->core, &more);
    seen_record(w->core, NULL);
    assert_int_equal(tally(w, sb, EVENT_FILE_WRITTEN, "files").things, 1);
    assert_int_equal(world_count_events(w, sb->info.id, EVENT_LOG_SUPPRESSED), 0);
    assert_int_equal(event_flush_suppressed(w->events, &err), 0);
    usleep(SUP_SEEN_SECONDS * USEC_PER_SEC);
    assert_int_equal(event_flush_suppressed(w->events, &err), 0);
    assert_string_equal(world_event_data(w, sb->info.id, EVENT_LOG_SUPPRESSED),
                        "{\"kind\":\"file.written\",\"count\":3200}");
}

/* The longest there are, of bytes that take six in JSON: each is in an event that has room for it. */
static void what_does_not_fit_is_another_event(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    char argv[2048];
    memset(argv, 1, sizeof(argv));
    for (unsigned pid = 1; pid <= 40; pid++)
        see(sb, SUP_SEEN_EXEC, pid, str_n(argv, pid % 2 ? 300 : sizeof(argv)));
    seen_record(w->core, NULL);
    const struct tally t = tally(w, sb, EVENT_PROC_EXEC, "programs");
    assert_int_equal(t.things, 40);
    assert_true(t.events >= 20 && t.events <= 40);
}

static void floods_are_counted_by_the_thing(void **state)
{
    enum { PROGRAMS = 5000 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    uint64_t suppressed = 0;
    struct err err;
    for (unsigned pid = 1; pid <= PROGRAMS; pid++)
        see(sb, SUP_SEEN_EXEC, pid, str_n("sh\0", 3));
    seen_record(w->core, NULL);
    assert_int_equal(sandbox_kill(sb, &test_actor, NULL, NULL, &err), 0);
    WAIT(w, world_count_events(w, sb->info.id, EVENT_SANDBOX_ENDED));
    const struct tally t = tally(w, sb, EVENT_PROC_EXEC, "programs");
    struct str data = str_of(world_event_data(w, sb->info.id, EVENT_LOG_SUPPRESSED));
    const struct str before = STR("{\"kind\":\"proc.exec\",\"count\":");
    assert_true(str_starts(data, before));
    assert_int_equal(str_to_u64(str_n(data.p + before.n, data.n - before.n - 1), &suppressed), 0);
    assert_int_equal(t.things + suppressed, PROGRAMS);
    assert_in_range(t.things, 400, 600); /* two seconds' worth, and the rest of an event */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_message_is_one_event_for_each_sandbox_and_kind),
        TEST(more_sandboxes_than_batches),
        TEST(what_is_only_counted_is_suppressed),
        TEST(what_does_not_fit_is_another_event),
        TEST(floods_are_counted_by_the_thing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "event/json.h"
#include "event/log.h"
#include "event/tail.h"
#include "event/test_log.h"
#include "event/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
    int n;
    uint64_t first, last;
    enum event_kind kinds[64];
    char data[64][EVENT_DATA_MAX + 1];
    char actor[64][EVENT_ACTOR_MAX + 1];
    int stop_after;
};

static bool note(const struct event *e, void *ctx)
{
    struct seen *s = ctx;
    assert_true(s->n < 64);
    if (s->n == 0)
        s->first = e->seq;
    else
        assert_int_equal(e->seq, s->last + 1);
    s->last = e->seq;
    s->kinds[s->n] = e->kind;
    memcpy(s->data[s->n], e->data.p, e->data.n);
    s->data[s->n][e->data.n] = 0;
    memcpy(s->actor[s->n], e->actor.p, e->actor.n);
    s->actor[s->n][e->actor.n] = 0;
    return ++s->n != s->stop_after;
}

static struct seen *read_all(struct test_log *t, const char *sandbox, uint64_t from, size_t limit, int stop_after)
{
    static struct seen seen;
    struct err err;
    seen = (struct seen){.stop_after = stop_after};
    int r = event_read(t->log, sandbox, from, limit, note, &seen, &err);
    if (r < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(r, seen.n);
    return &seen;
}

static void test_append_and_read(void **state)
{
    struct test_log t = test_log_open(state);
    struct event_bounds bounds;
    struct err err;
    assert_int_equal(event_bounds_get(t.log, "i1", &bounds, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(test_append(&t, "i1", EVENT_SANDBOX_CREATE, "{}"), 1);
    assert_int_equal(test_append(&t, "i2", EVENT_SANDBOX_CREATE, ""), 1);
    assert_int_equal(test_append(&t, "i1", EVENT_EXEC_START, "{ \"cmd\" : \"ls\" }"), 2);
    /* Nobody sees what is not committed. */
    assert_int_equal(read_all(&t, "i1", 0, 100, 0)->n, 0);
    test_commit(&t);
    struct seen *s = read_all(&t, "i1", 0, 100, 0);
    assert_int_equal(s->n, 2);
    assert_int_equal(s->first, 1);
    assert_int_equal(s->kinds[0], EVENT_SANDBOX_CREATE);
    assert_int_equal(s->kinds[1], EVENT_EXEC_START);
    assert_string_equal(s->data[0], "{}");
    assert_string_equal(s->data[1], "{\"cmd\":\"ls\"}");
    assert_string_equal(s->actor[1], "api");
    test_append_n(&t, "i1", 10);
    assert_int_equal(read_all(&t, "i1", 0, 100, 0)->last, 2);
    test_log_reopen(&t); /* closing commits */
    assert_int_equal(read_all(&t, "i1", 0, 100, 0)->last, 12);
    assert_int_equal(read_all(&t, "i1", 5, 3, 0)->last, 7);
    assert_int_equal(read_all(&t, "i1", 5, 100, 2)->last, 6);
    assert_int_equal(read_all(&t, "i1", 13, 100, 0)->n, 0);
    assert_int_equal(read_all(&t, "i1", UINT64_MAX, 100, 0)->n, 0);
    assert_int_equal(event_bounds_get(t.log, "i1", &bounds, &err), 0);
    assert_int_equal(bounds.first, 1);
    assert_int_equal(bounds.last, 12);
    assert_int_equal(test_append(&t, "i1", EVENT_SANDBOX_KILL, ""), 13);
    test_commit(&t);
    test_intact(&t, "i1", 13);
    test_intact(&t, "i2", 1);
    test_log_close(&t);
}

static void test_undone_batches_free_their_seqs(void **state)
{
    struct test_log t = test_log_open(state);
    test_append_n(&t, "i1", 3);
    store_rollback(t.store);
    struct err err;
    struct event_bounds bounds;
    assert_int_equal(event_bounds_get(t.log, "i1", &bounds, &err), -1);
    test_append_n(&t, "i1", 2);
    test_commit(&t);
    test_append_n(&t, "i1", 5);
    test_append_n(&t, "i2", 5);
    store_rollback(t.store);
    assert_int_equal(test_append(&t, "i1", EVENT_EXEC_EXIT, ""), 3);
    assert_int_equal(test_append(&t, "i2", EVENT_EXEC_EXIT, ""), 1);
    test_commit(&t);
    test_intact(&t, "i1", 3);
    test_intact(&t, "i2", 1);
    test_log_close(&t);
}

/* Whatever comes in as data, what is stored is one line of JSON, an object, and bounded. */
static void test_hostile_data(void **state)
{
    struct test_log t = test_log_open(state);
    AUTO_FREE char *big = mem_alloc(100000);
    AUTO_FREE char *controls = mem_alloc(100000);
    memset(big, 'x', 100000);
    memcpy(big, "{\"k\":\"", 6);
    memcpy(big + 100000 - 3, "\"}", 3);
    memset(controls, 1, 99999);
    controls[99999] = 0;
    const char *const datas[] = {
        big,
        controls,
        "{\"a\":1}\n{\"b\":2}",
        "[1]",
        "\"text\"",
        "{",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\xff\"}",
        "{\n\"a\"\n:\n[1,\r\n2]}",
    };
    const char *const wants[] = {"{\"truncated\":true,\"bytes\":99999,",
                                 "{\"malformed\":true,\"bytes\":99999,",
                                 "{\"malformed\":true,\"bytes\":15,\"head\":\"{\\\"a\\\":1}\\n{\\\"b\\\":2}\"}",
                                 "{\"malformed\":true,\"bytes\":3,\"head\":\"[1]\"}",
                                 "{\"malformed\":true,\"bytes\":6,\"head\":\"\\\"text\\\"\"}",
                                 "{\"malformed\":true,\"bytes\":1,\"head\":\"{\"}",
                                 "{\"malformed\":true,\"bytes\":9,\"head\":\"{\\\"a\\\":\\\"\\n\\\"}\"}",
                                 "{\"malformed\":true,\"bytes\":9,\"head\":\"{\\\"a\\\":\\\"\\ufffd\\\"}\"}",
                                 "{\"a\":[1,2]}"};
    for (size_t i = 0; i < ARRAY_SIZE(datas); i++)
        (void)test_append(&t, "i1", EVENT_EXEC_OUTPUT, datas[i]);
    test_commit(&t);
    struct seen *s = read_all(&t, "i1", 0, 100, 0);
    assert_int_equal(s->n, ARRAY_SIZE(datas));
    for (int i = 0; i < s->n; i++) {
        AUTO_BUF struct buf again = BUF_INIT(EVENT_DATA_MAX);
        assert_true(str_starts(str_of(s->data[i]), str_of(wants[i])));
        assert_int_equal(json_compact(str_of(s->data[i]), &again), 0);
        assert_true(str_eqc(buf_str(&again), s->data[i]));
        assert_null(strchr(s->data[i], '\n'));
    }
    test_intact(&t, "i1", ARRAY_SIZE(datas));
    test_log_close(&t);
}

static void test_hostile_actor_and_id(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    char actor[1000];
    memset(actor, 'a', sizeof(actor));
    struct event_draft draft = {
        .sandbox = "i1", .kind = EVENT_DIAL, .source = EVENT_CLIENT, .grade = EVENT_OBSERVED_HOST};
    draft.actor = str_n(actor, sizeof(actor));
    assert_int_equal(event_append(t.log, &draft, NULL, &err), 0);
    draft.actor = STR("e2b:\xff\n\0x");
    assert_int_equal(event_append(t.log, &draft, NULL, &err), 0);
    test_commit(&t);
    struct seen *s = read_all(&t, "i1", 0, 100, 0);
    assert_int_equal(strlen(s->actor[0]), EVENT_ACTOR_MAX);
    assert_string_equal(s->actor[1], "e2b:?\n?x");
    test_intact(&t, "i1", 2);

    char id[EVENT_ID_MAX + 2];
    memset(id, 'i', sizeof(id));
    id[EVENT_ID_MAX + 1] = 0;
    const char *const bad[] = {"", NULL, id, "i\xff"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        draft.sandbox = bad[i];
        assert_int_equal(event_append(t.log, &draft, NULL, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
    id[EVENT_ID_MAX] = 0;
    draft.sandbox = id;
    assert_int_equal(event_append(t.log, &draft, NULL, &err), 0);
    assert_int_equal(event_verify(t.log, "i'; DROP TABLE events; --", &(struct event_verdict){0}, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    test_log_close(&t);
}

static void test_floods(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    struct event_draft draft = {
        .sandbox = "i1", .kind = EVENT_EXEC_OUTPUT, .source = EVENT_AGENT, .grade = EVENT_CLAIMED, .data = STR("{}")};
    const struct event_limit hour = {.burst = 3, .window = 3600 * USEC_PER_SEC};
    uint64_t seq = 99;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(event_append_limited(t.log, &draft, &hour, &seq, &err), i < 3);
        assert_int_equal(seq, i < 3 ? i + 1 : 0);
        if (i == 6)
            test_commit(&t);
    }
    /* Kinds and sandboxes have windows of their own. */
    draft.kind = EVENT_NET_DENIED;
    assert_int_equal(event_append_limited(t.log, &draft, &hour, NULL, &err), 1);
    draft.sandbox = "i2";
    draft.kind = EVENT_EXEC_OUTPUT;
    assert_int_equal(event_append_limited(t.log, &draft, &hour, NULL, &err), 1);
    /* The window is still open: nothing is due, until the end. */
    assert_int_equal(event_flush_suppressed(t.log, &err), 0);
    test_commit(&t);
    assert_int_equal(read_all(&t, "i1", 0, 100, 0)->n, 4);
    (void)test_append(&t, "i1", EVENT_SANDBOX_ENDED, "{\"cause\":\"killed\"}");
    store_rollback(t.store); /* the count is not lost with the batch */
    (void)test_append(&t, "i1", EVENT_SANDBOX_ENDED, "{\"cause\":\"killed\"}");
    test_commit(&t);
    struct seen *s = read_all(&t, "i1", 5, 100, 0);
    assert_int_equal(s->n, 2);
    assert_int_equal(s->kinds[0], EVENT_LOG_SUPPRESSED);
    assert_string_equal(s->data[0], "{\"kind\":\"exec.output\",\"count\":7}");
    assert_int_equal(s->kinds[1], EVENT_SANDBOX_ENDED);

    /* Things that one event tells of count each; the last event is not cut. */
    draft.sandbox = "i4";
    draft.count = 2;
    for (int i = 0; i < 4; i++)
        assert_int_equal(event_append_limited(t.log, &draft, &hour, NULL, &err), i < 2);
    (void)test_append(&t, "i4", EVENT_SANDBOX_ENDED, "");
    test_commit(&t);
    assert_string_equal(read_all(&t, "i4", 3, 100, 0)->data[0], "{\"kind\":\"exec.output\",\"count\":4}");
    draft.count = 0;

    /* A new window: the count comes first, once. */
    draft.sandbox = "i3";
    struct event_limit minute = {.burst = 1, .window = 60 * USEC_PER_SEC};
    assert_int_equal(event_append_limited(t.log, &draft, &minute, NULL, &err), 1);
    assert_int_equal(event_append_limited(t.log, &draft, &minute, NULL, &err), 0);
    struct tail *tail = map_get(&t.log->tails, STR("i3"));
    tail->floods[EVENT_EXEC_OUTPUT].window_start -= minute.window;
    assert_int_equal(event_append_limited(t.log, &draft, &minute, &seq, &err), 1);
    assert_int_equal(seq, 3);
    assert_int_equal(event_append_limited(t.log, &draft, &minute, NULL, &err), 0);
    tail->floods[EVENT_EXEC_OUTPUT].window_start -= minute.window;
    assert_int_equal(event_flush_suppressed(t.log, &err), 0);
    assert_int_equal(event_flush_suppressed(t.log, &err), 0);
    assert_int_equal(test_append(&t, "i3", EVENT_EXEC_EXIT, ""), 5);
    test_commit(&t);
    s = read_all(&t, "i3", 0, 100, 0);
    assert_int_equal(s->kinds[1], EVENT_LOG_SUPPRESSED);
    assert_int_equal(s->kinds[2], EVENT_EXEC_OUTPUT);
    assert_int_equal(s->kinds[3], EVENT_LOG_SUPPRESSED);
    test_intact(&t, "i3", 5);
    test_log_close(&t);
}

/* More sandboxes than tails are kept: those that were dropped are loaded again, those in use stay. */
static void test_tails_are_bounded(void **state)
{
    struct test_log t = test_log_open(state);
    struct event_cursor *cursor;
    struct err err;
    char id[32];
    assert_int_equal(event_subscribe(t.log, "i000000", 0, NULL, NULL, &cursor, &err), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < TAILS_MAX + 500; i++) {
            (void)snprintf(id, sizeof(id), "i%06d", i);
            assert_int_equal(test_append(&t, id, EVENT_EXEC_START, ""), round + 1);
            if (i % 100 == 0)
                test_commit(&t);
        }
    }
    test_commit(&t);
    assert_true(map_count(&t.log->tails) <= TAILS_MAX + 100);
    assert_non_null(map_get(&t.log->tails, STR("i000000")));
    test_intact(&t, "i000000", 2);
    test_intact(&t, "i002400", 2);
    event_cursor_close(cursor);
    test_log_close(&t);
}

static void test_prune_and_erase(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    struct event_bounds bounds;
    enum { N = 5000 };
    test_append_n(&t, "i1", N);
    test_append_n(&t, "i2", 3);
    assert_int_equal(event_prune(t.log, "i1", N, &err), 0); /* nothing is committed yet */
    test_commit(&t);
    int calls = 1, r;
    while ((r = event_prune(t.log, "i1", 4501, &err)) == 1) {
        test_commit(&t);
        test_intact(&t, "i1", N + (uint64_t)calls);
        assert_true(++calls < 10);
    }
    assert_int_equal(r, 0);
    assert_true(calls > 1); /* bounded steps */
    test_commit(&t);
    assert_int_equal(event_bounds_get(t.log, "i1", &bounds, &err), 0);
    assert_int_equal(bounds.first, 4501);
    assert_int_equal(bounds.last, N + calls);
    struct seen *s = read_all(&t, "i1", 0, 10, 0);
    assert_int_equal(s->first, 4501);
    s = read_all(&t, "i1", bounds.last, 10, 0);
    assert_int_equal(s->kinds[0], EVENT_LOG_PRUNED);
    assert_string_equal(s->data[0], "{\"from\":4001,\"to\":4500}");
    assert_int_equal(event_prune(t.log, "i1", 100, &err), 0); /* long gone: nothing to do */
    test_log_reopen(&t);
    test_intact(&t, "i1", N + (uint64_t)calls);
    test_intact(&t, "i2", 3);

    /* Undone: as if nothing had been. */
    assert_int_equal(event_prune(t.log, "i1", 4600, &err), 0);
    store_rollback(t.store);
    test_intact(&t, "i1", N + (uint64_t)calls);
    assert_int_equal(test_append(&t, "i1", EVENT_EXEC_EXIT, ""), N + calls + 1);
    test_commit(&t);
    test_intact(&t, "i1", N + (uint64_t)calls + 1);
    /* The newest stays whatever is asked for. */
    assert_int_equal(event_prune(t.log, "i2", UINT64_MAX, &err), 0);
    test_commit(&t);
    assert_int_equal(event_bounds_get(t.log, "i2", &bounds, &err), 0);
    assert_int_equal(bounds.first, 3);

    while ((r = event_erase(t.log, "i1", &err)) == 1)
        test_commit(&t);
    assert_int_equal(r, 0);
    test_commit(&t);
    assert_int_equal(event_bounds_get(t.log, "i1", &bounds, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(event_erase(t.log, "i1", &err), 0);
    test_intact(&t, "i2", 4);
    test_log_close(&t);
    assert_int_equal(test_sql_number(t.dir->db, "SELECT count(*) FROM events"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
        TEST(test_append_and_read), TEST(test_undone_batches_free_their_seqs),
        TEST(test_hostile_data),    TEST(test_hostile_actor_and_id),
        TEST(test_floods),          TEST(test_tails_are_bounded),
        TEST(test_prune_and_erase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

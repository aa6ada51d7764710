/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a long log: where a time is in it, from both ends. */
#include "base/mem.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

enum { N = SANDBOX_LOGS_MAX + 1000, STEP = 1000, LINES_MAX = 1000 };

static usec_t begin; /* of the event with the number 0 */

static void fill(struct world *w, const char *id)
{
    struct err err;
    begin = clock_real() - (usec_t)N * STEP - USEC_PER_SEC;
    for (unsigned i = 0; i < N; i++) {
        char data[32];
        (void)snprintf(data, sizeof(data), "{\"n\":%u}", i);
        struct event_draft draft = {.sandbox = id,
                                    .kind = EVENT_SANDBOX_TIMEOUT,
                                    .source = EVENT_CLIENT,
                                    .grade = EVENT_OBSERVED_HOST,
                                    .data = str_of(data),
                                    .time = begin + (usec_t)i * STEP};
        assert_int_equal(event_append(w->events, &draft, NULL, &err), 0);
    }
    assert_int_equal(store_commit(w->store, &err), 0);
}

struct seen {
    size_t n;
    unsigned numbers[LINES_MAX];
};

static bool see(void *ctx, usec_t at, const char *level, const char *logger, const char *message)
{
    struct seen *s = ctx;
    static const struct str before = {"sandbox.timeout {\"n\":", 21};
    struct str rest = str_sub(str_of(message), before.n);
    uint64_t number = 0;
    assert_true(str_starts(str_of(message), before) && rest.n);
    assert_int_equal(str_to_u64(str_n(rest.p, rest.n - 1), &number), 0);
    assert_true(at == begin + number * STEP);
    assert_string_equal(level, "info");
    assert_string_equal(logger, "sandbox");
    assert_true(s->n < LINES_MAX);
    s->numbers[s->n++] = (unsigned)number;
    return number != 100;
}

static usec_t when(size_t number)
{
    return begin + number * STEP;
}

static void walk(struct world *w, struct str id, usec_t from, size_t limit, struct seen *s)
{
    struct sandbox_log_walk walk;
    struct err err;
    assert_int_equal(sandbox_log_walk_init(&walk, w->core, id, from, limit, &err), 0);
    assert_true(sandbox_log_walk_next(&walk, SANDBOX_LOGS_MAX, see, s, &err) >= 0);
}

static void forwards(struct world *w, struct str id, usec_t from, size_t limit, unsigned first, size_t n)
{
    struct seen s = {0};
    walk(w, id, from, limit, &s);
    assert_int_equal(s.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(s.numbers[i], first + i);
}

static void backwards(struct world *w, struct str id, usec_t from, usec_t until, size_t limit, unsigned last, size_t n)
{
    struct seen s = {0};
    struct err err;
    assert_int_equal(sandbox_logs_back(w->core, id, from, until, limit, see, &s, &err), 0);
    assert_int_equal(s.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(s.numbers[i], last - i);
}

static void long_log(void **state)
{
    struct world *w = *state;
    char sandbox[ID_SANDBOX_LEN + 1];
    id_sandbox(sandbox); /* that ended long ago */
    struct str id = str_of(sandbox);
    struct err err;
    struct event_bounds bounds;
    fill(w, sandbox);

    forwards(w, id, when(0), 10, 0, 10);
    forwards(w, id, when(0), LINES_MAX, 0, 101); /* it was told to stop */
    forwards(w, id, when(4999) + 1, 10, 5000, 10);
    forwards(w, id, when(N - 500), LINES_MAX, N - 500, 500); /* the newest of more than one call reads */
    forwards(w, id, when(N - 1), 10, N - 1, 1);
    forwards(w, id, when(N - 1) + 1, 10, 0, 0);
    forwards(w, id, UINT64_MAX, 10, 0, 0);
    forwards(w, id, when(7), 0, 0, 0);

    backwards(w, id, 0, UINT64_MAX, 10, N - 1, 10);
    backwards(w, id, 0, when(N - 1), 10, N - 1, 10);
    backwards(w, id, 0, when(N - 1) - 1, LINES_MAX, N - 2, LINES_MAX);
    backwards(w, id, when(N - 3), UINT64_MAX, 10, N - 1, 3);
    backwards(w, id, when(0), when(300), LINES_MAX, 300, 201); /* it was told to stop */
    backwards(w, id, when(0), when(64), 10, 64, 10);
    backwards(w, id, when(0), when(3), 10, 3, 4);
    backwards(w, id, when(4) + 1, when(5) - 1, 10, 0, 0);
    backwards(w, id, when(5), when(4), 10, 0, 0);
    backwards(w, id, 0, UINT64_MAX, 0, 0, 0);

    /* Its oldest part is gone. */
    int more = 1;
    while (more > 0)
        more = event_prune(w->events, sandbox, N - 5000, &err);
    assert_int_equal(more, 0);
    assert_int_equal(store_commit(w->store, &err), 0);
    assert_int_equal(event_bounds_get(w->events, sandbox, &bounds, &err), 0);
    assert_int_equal(bounds.first, N - 5000);
    unsigned gone = N - 6000;
    struct seen s = {0};
    walk(w, id, when(gone), 10, &s);
    assert_int_equal(s.n, 10);
    assert_true(s.numbers[0] > gone && s.numbers[0] <= N - 5000); /* the first that is kept */
    backwards(w, id, when(0), when(s.numbers[0] + 1), 10, s.numbers[0] + 1, 2);
    backwards(w, id, when(0), when(gone), 10, 0, 0);
    forwards(w, id, when(N - 10), 5, N - 10, 5);
}

static void unknown(void **state)
{
    struct world *w = *state;
    struct seen s = {0};
    struct err err;
    assert_int_equal(sandbox_logs_back(w->core, STR("../etc"), 0, UINT64_MAX, 10, see, &s, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(sandbox_logs_back(w->core, STR("iaaaaaaaaaaaaaaaaaaaa"), 0, UINT64_MAX, 10, see, &s, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(long_log), TEST(unknown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

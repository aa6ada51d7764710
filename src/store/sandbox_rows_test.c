/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "store/sandbox_rows.h"
#include "store/tenant_rows.h"
#include "store/test_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct store *open_ok(const struct test_dir *dir)
{
    struct store *s = NULL;
    struct err err;
    if (store_open(dir->db, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

static const struct store_sandbox full = {
    .id = "i00000000000000000001",
    .state = 3,
    .tier = "container",
    .template_id = "tpl-1",
    .template_alias = "base",
    .layer_digest = "sha256:abc",
    .created_at = 1000000000000001,
    .started_at = 1000000000000002,
    .end_at = 1000000000000003,
    .timeout = 300 * USEC_PER_SEC,
    .cpu_milli = 2000,
    .memory_bytes = 512ULL << 20,
    .disk_bytes = 10ULL << 30,
    .access_token = "ea_1",
    .traffic_token = "ta_2",
    .on_timeout = STORE_ON_TIMEOUT_PAUSE,
    .auto_resume = true,
    .secure = true,
    .allow_internet = true,
    .metadata = "{\"user\":\"\xc3\xa4\"}",
    .envs = "{\"A\":\"b\"}",
    .network = "{\"allowOut\":[]}",
    .extra = "{}",
    .ended_at = 0,
    .end_cause = "",
};

static void same(const struct store_sandbox *a, const struct store_sandbox *b)
{
    assert_string_equal(a->id, b->id);
    assert_int_equal(a->state, b->state);
    assert_string_equal(a->tier, b->tier);
    assert_string_equal(a->template_id, b->template_id);
    assert_string_equal(a->template_alias, b->template_alias);
    assert_string_equal(a->layer_digest, b->layer_digest);
    assert_int_equal(a->created_at, b->created_at);
    assert_int_equal(a->started_at, b->started_at);
    assert_int_equal(a->end_at, b->end_at);
    assert_int_equal(a->timeout, b->timeout);
    assert_int_equal(a->cpu_milli, b->cpu_milli);
    assert_int_equal(a->memory_bytes, b->memory_bytes);
    assert_int_equal(a->disk_bytes, b->disk_bytes);
    assert_string_equal(a->access_token, b->access_token);
    assert_string_equal(a->traffic_token, b->traffic_token);
    assert_int_equal(a->on_timeout, b->on_timeout);
    assert_int_equal(a->auto_resume, b->auto_resume);
    assert_int_equal(a->secure, b->secure);
    assert_int_equal(a->allow_internet, b->allow_internet);
    assert_string_equal(a->metadata, b->metadata);
    assert_string_equal(a->envs, b->envs);
    assert_string_equal(a->network, b->network);
    assert_string_equal(a->extra, b->extra);
    assert_int_equal(a->ended_at, b->ended_at);
    assert_string_equal(a->end_cause, b->end_cause);
}

static struct store_sandbox get(struct store *s, const char *id, struct arena *arena)
{
    struct store_sandbox row = {0};
    struct err err;
    if (sandbox_rows_get(s, id, arena, &row, &err) < 0)
        fail_msg("%s", err.msg);
    return row;
}

static void test_round_trip(void **state)
{
    struct store *s = open_ok(*state);
    struct err err;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    assert_int_equal(sandbox_rows_insert(s, &full, &err), 0);
    store_close(s);
    s = open_ok(*state);
    struct store_sandbox row = get(s, full.id, &arena);
    same(&row, &full);

    /* The same id again is an ordinary error: the rest of the batch lives. */
    struct store_sandbox sparse = {.id = "i00000000000000000002"};
    assert_int_equal(sandbox_rows_insert(s, &sparse, &err), 0);
    assert_int_equal(sandbox_rows_insert(s, &full, &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
    assert_int_equal(store_commit(s, &err), 0);
    row = get(s, sparse.id, &arena);
    assert_string_equal(row.metadata, "");
    assert_string_equal(row.tier, "");
    assert_int_equal(sandbox_rows_get(s, "i0", &arena, &row, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    store_close(s);
}

/* Format 3 had another name for a column. */
static void test_updates(void **state)
{
    struct store *s = open_ok(*state);
    struct err err;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct store_sandbox want = full, other = full;
    other.id = "i00000000000000000009";
    assert_int_equal(sandbox_rows_insert(s, &full, &err), 0);
    assert_int_equal(sandbox_rows_insert(s, &other, &err), 0);

    assert_int_equal(sandbox_rows_update_state(s, full.id, want.state = 5, &err), 0);
    assert_int_equal(sandbox_rows_update_end_at(s, full.id, want.end_at = 0, want.timeout = 9, &err), 0);
    assert_int_equal(sandbox_rows_update_network(s, full.id, want.network = "{\"n\":1}", &err), 0);
    assert_int_equal(sandbox_rows_update_extra(s, full.id, want.extra = "{\"x\":1}", &err), 0);
    struct store_sandbox row = get(s, full.id, &arena);
    same(&row, &want);
    assert_int_equal(
        sandbox_rows_update_ended(s, full.id, want.state = 8, want.ended_at = 99, want.end_cause = "killed", &err), 0);
    row = get(s, full.id, &arena);
    same(&row, &want);
    row = get(s, other.id, &arena);
    same(&row, &other);

    assert_int_equal(sandbox_rows_update_state(s, "nobody", 1, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(sandbox_rows_delete(s, full.id, &err), 0);
    assert_int_equal(sandbox_rows_delete(s, full.id, &err), 0);
    assert_int_equal(store_commit(s, &err), 0); /* none of these spoiled the batch */
    assert_int_equal(sandbox_rows_get(s, full.id, &arena, &row, &err), -1);
    store_close(s);
}

static bool note(const struct store_sandbox *row, void *ctx)
{
    struct buf *seen = ctx;
    buf_append_cstr(seen, row->id);
    buf_append_char(seen, ' ');
    return true;
}

static bool note_one(const struct store_sandbox *row, void *ctx)
{
    (void)note(row, ctx);
    return false;
}

static void saw(struct buf *seen, const char *want)
{
    buf_append_char(seen, 0);
    assert_string_equal(buf_data(seen), want);
    buf_clear(seen);
}

static void test_lists(void **state)
{
    struct store *s = open_ok(*state);
    struct err err;
    AUTO_BUF struct buf seen = BUF_INIT(4096);
    static const struct {
        const char *id;
        usec_t created_at, ended_at;
        uint64_t tenant;
    } rows[] = {{"d", 40, 0, 0}, {"a", 10, 100, 7}, {"b", 20, 0, 7}, {"c", 30, 300, 0}, {"e", 50, 200, 7}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct store_sandbox row = {
            .id = rows[i].id, .created_at = rows[i].created_at, .ended_at = rows[i].ended_at, .tenant = rows[i].tenant};
        assert_int_equal(sandbox_rows_insert(s, &row, &err), 0);
    }
    assert_int_equal(store_commit(s, &err), 0);
    assert_int_equal(sandbox_rows_each_live(s, note, &seen, &err), 0);
    saw(&seen, "b d ");
    assert_int_equal(sandbox_rows_each_live(s, note_one, &seen, &err), 0);
    saw(&seen, "b ");
    assert_int_equal(sandbox_rows_each_ended(s, TENANT_ANY, 10, note, &seen, &err), 0);
    saw(&seen, "c e a ");
    assert_int_equal(sandbox_rows_each_ended(s, 7, 10, note, &seen, &err), 0);
    saw(&seen, "e a ");
    assert_int_equal(sandbox_rows_each_ended(s, 7, 1, note, &seen, &err), 0);
    saw(&seen, "e ");
    assert_int_equal(sandbox_rows_each_expired(s, 250, 10, note, &seen, &err), 0);
    saw(&seen, "a e ");
    assert_int_equal(sandbox_rows_each_expired(s, 100, 10, note, &seen, &err), 0);
    saw(&seen, "");
    assert_int_equal(sandbox_rows_each_surplus(s, 2, note, &seen, &err), 0);
    saw(&seen, "a ");
    assert_int_equal(sandbox_rows_each_surplus(s, 3, note, &seen, &err), 0);
    saw(&seen, "");
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
        TEST(test_round_trip),
        TEST(test_updates),
        TEST(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

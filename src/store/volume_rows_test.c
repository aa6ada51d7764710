/* SPDX-License-Identifier: Apache-2.0 */
#include "store/test_dir.h"
#include "store/volume_rows.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    unsigned n;
    char text[512];
};

static void note_volume(void *ctx, const struct store_volume *v)
{
    struct seen *s = ctx;
    size_t at = strlen(s->text);
    s->n++;
    (void)snprintf(s->text + at, sizeof(s->text) - at, "%s %s %s %llu %llu;", v->id, v->name, v->token,
                   (unsigned long long)v->limit_bytes, (unsigned long long)v->created_at);
}

static void note_spares(void *ctx, const char *template_id, uint32_t count, uint32_t most)
{
    struct seen *s = ctx;
    size_t at = strlen(s->text);
    s->n++;
    (void)snprintf(s->text + at, sizeof(s->text) - at, "%s=%u/%u;", template_id, count, most);
}

static struct store *reopened(struct test_dir *dir, struct store *s)
{
    struct err err;
    store_close(s);
    if (store_open(dir->db, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

static void kept(void **state)
{
    struct test_dir *dir = *state;
    struct store *s = reopened(dir, NULL);
    struct seen seen = {0};
    struct err err;
    struct store_volume a = {.id = "vol-b", .name = "a", .token = "t", .limit_bytes = 5, .created_at = 7},
                        b = {.id = "vol-a", .name = "b", .token = "u"},
                        taken = {.id = "vol-c", .name = "a", .token = ""};
    assert_int_equal(volume_rows_insert(s, &b, &err), 0);
    assert_int_equal(volume_rows_insert(s, &a, &err), 0);
    assert_int_equal(volume_rows_insert(s, &taken, &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
    assert_int_equal(spare_rows_put(s, "base-1", 3, 7, &err), 0);
    assert_int_equal(spare_rows_put(s, "base-1", 0, 9, &err), 0);
    s = reopened(dir, s);
    assert_int_equal(volume_rows_each(s, note_volume, &seen, &err), 0);
    assert_string_equal(seen.text, "vol-b a t 5 7;vol-a b u 0 0;");
    assert_int_equal(volume_rows_delete(s, "vol-b", &err), 0);
    assert_int_equal(volume_rows_delete(s, "vol-none", &err), 0);
    assert_int_equal(volume_rows_insert(s, &taken, &err), 0);
    seen = (struct seen){0};
    assert_int_equal(volume_rows_each(s, note_volume, &seen, &err), 0);
    assert_int_equal(seen.n, 2);
    seen = (struct seen){0};
    assert_int_equal(spare_rows_each(s, note_spares, &seen, &err), 0);
    assert_string_equal(seen.text, "base-1=0/9;");
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(kept, test_dir_setup, test_dir_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

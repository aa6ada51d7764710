/* SPDX-License-Identifier: Apache-2.0 */
#include "store/schema.h"
#include "store/tenant_rows.h"
#include "store/test_dir.h"
#include "store/volume_rows.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>
#include <cmocka.h>

static char seen[1024];

static void note(const char *text, uint64_t number)
{
    size_t at = strlen(seen);
    (void)snprintf(seen + at, sizeof(seen) - at, "%s=%llu;", text, (unsigned long long)number);
}

static void note_tenant(void *ctx, const struct store_tenant *t)
{
    (void)ctx;
    note(t->name, t->number);
}

static void note_limit(void *ctx, uint64_t number, const char *what, uint64_t most)
{
    (void)ctx;
    note(what, 1000 * number + most);
}

static void note_key(void *ctx, const struct store_key *k)
{
    (void)ctx;
    note(k->name, k->tenant);
    note(k->sandbox, k->expires_at);
    note("hash", k->hash.n);
    note("old", k->old_hash.n);
}

static void note_volume(void *ctx, const struct store_volume *v)
{
    (void)ctx;
    note(v->name, v->tenant);
}

static struct store *opened(struct test_dir *dir)
{
    struct store *s;
    struct err err;
    if (store_open(dir->db, &s, &err) < 0)
        fail_msg("%s", err.msg);
    seen[0] = '\0';
    return s;
}

static void tenants_and_keys_are_kept(void **state)
{
    struct test_dir *dir = *state;
    AUTO(store_close) struct store *s = opened(dir);
    static const char hash[KEY_HASH_SIZE] = "1";
    struct store_key key = {.id = "key-a",
                            .name = "ci",
                            .sandbox = "",
                            .tenant = 1,
                            .scope = 2,
                            .hash = {hash, sizeof(hash)},
                            .expires_at = 9};
    uint64_t a = 0, b = 0, owner = 7;
    struct err err;
    assert_int_equal(tenant_rows_insert(s, "a", 5, &a, &err), 0);
    assert_int_equal(tenant_rows_insert(s, "a", 5, &b, &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
    assert_int_equal(a, 1);
    assert_int_equal(tenant_rows_put_limit(s, a, "sandboxes", 2, &err), 0);
    assert_int_equal(tenant_rows_put_limit(s, a, "sandboxes", 3, &err), 0);
    assert_int_equal(key_rows_put(s, &key, &err), 0);
    key.name = "ci2";
    assert_int_equal(key_rows_put(s, &key, &err), 0);
    assert_int_equal(owner_rows_put(s, "vol-1", a, &err), 0);
    store_close(TAKE_PTR(s));

    s = opened(dir);
    assert_int_equal(tenant_rows_each(s, note_tenant, NULL, &err), 0);
    assert_int_equal(tenant_rows_each_limit(s, note_limit, NULL, &err), 0);
    assert_int_equal(key_rows_each(s, note_key, NULL, &err), 0);
    assert_string_equal(seen, "a=1;default=0;sandboxes=1003;ci2=1;=9;hash=32;old=0;");
    assert_int_equal(owner_rows_get(s, "vol-1", &owner, &err), 1);
    assert_int_equal(owner, a);
    assert_int_equal(owner_rows_delete(s, "vol-1", &err), 0);
    assert_int_equal(owner_rows_get(s, "vol-1", &owner, &err), 0);
    assert_int_equal(owner, TENANT_DEFAULT);

    /* With all that is its own; its number is not given out again. */
    assert_int_equal(tenant_rows_delete(s, a, &err), 0);
    assert_int_equal(tenant_rows_insert(s, "a", 5, &b, &err), 0);
    assert_int_equal(b, 2);
    seen[0] = '\0';
    assert_int_equal(tenant_rows_each_limit(s, note_limit, NULL, &err), 0);
    assert_int_equal(key_rows_each(s, note_key, NULL, &err), 0);
    assert_string_equal(seen, "");
}

static void names_of_volumes_are_each_tenants(void **state)
{
    struct test_dir *dir = *state;
    AUTO(store_close) struct store *s = opened(dir);
    struct store_volume a = {.id = "vol-a", .name = "data", .token = "t"},
                        b = {.id = "vol-b", .name = "data", .token = "t", .tenant = 1},
                        again = {.id = "vol-c", .name = "data", .token = "t", .tenant = 1};
    struct err err;
    assert_int_equal(volume_rows_insert(s, &a, &err), 0);
    assert_int_equal(volume_rows_insert(s, &b, &err), 0);
    assert_int_equal(volume_rows_insert(s, &again, &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
    assert_int_equal(volume_rows_each(s, note_volume, NULL, &err), 0);
    assert_string_equal(seen, "data=0;data=1;");
}

static void what_was_there_before_is_the_default_tenants(void **state)
{
    struct test_dir *dir = *state;
    sqlite3 *db;
    struct err err;
    assert_int_equal(sqlite3_open(dir->db, &db), SQLITE_OK);
    assert_int_equal(schema_apply(db, dir->db, schema_steps, 3, 0, &err), 0);
    assert_int_equal(
        sqlite3_exec(db,
                     "INSERT INTO volumes VALUES ('vol-a', 'data', 't', 5, 7);"
                     "INSERT INTO templates VALUES ('t1', 'app', 0, 1, 2);"
                     "INSERT INTO sandboxes VALUES ('i1', 1, 'container', 't1', 'app', 'l', 1, 1, 0, 0, 1, 2,"
                     " 3, 'secret', '', 0, 0, 1, 1, '{}', '{}', '', '{}', 0, '');",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    AUTO(store_close) struct store *s = opened(dir);
    assert_int_equal(volume_rows_each(s, note_volume, NULL, &err), 0);
    assert_string_equal(seen, "data=0;");
    assert_int_equal(test_sql_number(dir->db, "SELECT tenant FROM templates WHERE id = 't1'"), 0);
    assert_int_equal(
        test_sql_number(dir->db, "SELECT count(*) FROM sandboxes WHERE access_token = 'secret' AND tenant = 0"), 1);
    assert_int_equal(test_sql_number(dir->db, "SELECT limit_bytes FROM volumes WHERE id = 'vol-a'"), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tenants_and_keys_are_kept, test_dir_setup, test_dir_teardown),
        cmocka_unit_test_setup_teardown(names_of_volumes_are_each_tenants, test_dir_setup, test_dir_teardown),
        cmocka_unit_test_setup_teardown(what_was_there_before_is_the_default_tenants, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

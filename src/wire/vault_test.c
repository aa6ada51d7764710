/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/vault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void a_request_comes_out_as_it_went_in(void **state)
{
    (void)state;
    static const struct vault_request all[] = {
        {VAULT_SET, {"NAME", 4}, {"a\0b", 3}},
        {VAULT_REMOVE, {"N", 1}, {NULL, 0}},
        {VAULT_LIST, {NULL, 0}, {NULL, 0}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        AUTO_BUF struct buf b = BUF_INIT(VAULT_REQUEST_MAX);
        struct vault_request got;
        vault_request_append(&b, &all[i]);
        assert_int_equal(vault_message_size(buf_str(&b), VAULT_REQUEST_MAX), buf_len(&b));
        assert_int_equal(vault_request_parse(buf_str(&b), &got), 0);
        assert_int_equal(got.op, all[i].op);
        assert_true(str_eq(got.name, all[i].name));
        assert_true(str_eq(got.value, all[i].value));
        /* Nothing shorter or longer is one. */
        for (size_t n = 0; n < buf_len(&b); n++)
            assert_int_equal(vault_request_parse(str_n(buf_data(&b), n), &got), -EPROTO);
        buf_append_char(&b, 0);
        assert_int_equal(vault_request_parse(buf_str(&b), &got), -EPROTO);
    }
}

static void the_bytes_are_as_documented(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(64);
    vault_request_append(&b, &(struct vault_request){VAULT_SET, STR("N"), STR("v")});
    static const uint8_t expected[] = {12, 0, 0, 0, 1, 1, 1, 0, 0, 0, 'N', 1, 0, 0, 0, 'v'};
    assert_int_equal(buf_len(&b), sizeof(expected));
    assert_memory_equal(buf_data(&b), expected, sizeof(expected));
}

static void the_largest_request_fits(void **state)
{
    (void)state;
    static char name[VAULT_NAME_MAX], value[VAULT_VALUE_MAX];
    AUTO_BUF struct buf b = BUF_INIT(VAULT_REQUEST_MAX);
    struct vault_request got;
    vault_request_append(&b, &(struct vault_request){VAULT_SET, {name, sizeof(name)}, {value, sizeof(value)}});
    assert_int_equal(buf_error(&b), 0);
    assert_int_equal(buf_len(&b), VAULT_REQUEST_MAX);
    assert_int_equal(vault_request_parse(buf_str(&b), &got), 0);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[16];
        size_t n;
    } wrong[] = {
        {{12, 0, 0, 0, 2, 1, 1, 0, 0, 0, 'N', 1, 0, 0, 0, 'v'}, 16},             /* another version */
        {{12, 0, 0, 0, 1, 4, 1, 0, 0, 0, 'N', 1, 0, 0, 0, 'v'}, 16},             /* another op */
        {{12, 0, 0, 0, 1, 2, 1, 0, 0, 0, 'N', 1, 0, 0, 0, 'v'}, 16},             /* a value where none belongs */
        {{12, 0, 0, 0, 1, 1, 1, 0, 0, 0, 'N', 0xff, 0xff, 0xff, 0xff, 'v'}, 16}, /* a length that lies */
        {{7, 0, 0, 0, 1, 3, 1, 0, 0, 0, 'N'}, 11},                               /* a list of a name */
        {{6, 0, 0, 0, 1, 2, 0, 0, 0, 0}, 10},                                    /* a removal of none */
        {{1, 0, 0, 0, 1}, 5},
    };
    struct vault_request got;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_int_equal(vault_request_parse(str_n(wrong[i].bytes, wrong[i].n), &got), -EPROTO);
}

static void sizes_are_seen_before_anything_is_believed(void **state)
{
    (void)state;
    assert_int_equal(vault_message_size(str_n("\1\0\0", 3), VAULT_REQUEST_MAX), 0);
    assert_int_equal(vault_message_size(str_n("\1\0\0\0", 4), VAULT_REQUEST_MAX), 5);
    assert_int_equal(vault_message_size(str_n("\0\0\0\0", 4), VAULT_REQUEST_MAX), -EMSGSIZE);
    assert_int_equal(vault_message_size(str_n("\xff\xff\xff\xff", 4), VAULT_REQUEST_MAX), -EMSGSIZE);
}

static void an_answer_comes_out_as_it_went_in(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer got;
    struct str name;
    uint64_t at;
    size_t from = vault_answer_begin(&b);
    vault_answer_append_name(&b, STR("A"), 7);
    vault_answer_append_name(&b, STR("LONGER"), UINT64_MAX);
    vault_answer_end(&b, from, 2);
    assert_int_equal(vault_answer_parse(buf_str(&b), &got), 0);
    assert_int_equal(got.code, ERR_OK);
    assert_int_equal(got.count, 2);
    assert_true(vault_answer_next(&got, &name, &at));
    assert_true(str_eqc(name, "A") && at == 7);
    assert_true(vault_answer_next(&got, &name, &at));
    assert_true(str_eqc(name, "LONGER") && at == UINT64_MAX);
    assert_false(vault_answer_next(&got, &name, &at));
    for (size_t n = 0; n < buf_len(&b); n++)
        assert_int_equal(vault_answer_parse(str_n(buf_data(&b), n), &got), -EPROTO);

    buf_clear(&b);
    vault_answer_append_error(&b, &(struct err){.code = ERR_NOT_FOUND, .msg = "no such thing"});
    assert_int_equal(vault_answer_parse(buf_str(&b), &got), 0);
    assert_int_equal(got.code, ERR_NOT_FOUND);
    assert_true(str_eqc(got.message, "no such thing"));
}

static void as_many_names_as_there_can_be_fit(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer got;
    size_t from = vault_answer_begin(&b);
    char name[VAULT_NAME_MAX + 1];
    for (int i = 0; i < VAULT_NAMES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "%0*d", VAULT_NAME_MAX, i);
        vault_answer_append_name(&b, str_of(name), 1);
    }
    vault_answer_end(&b, from, VAULT_NAMES_MAX);
    assert_int_equal(buf_error(&b), 0);
    assert_int_equal(vault_answer_parse(buf_str(&b), &got), 0);
    assert_int_equal(got.count, VAULT_NAMES_MAX);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_comes_out_as_it_went_in),
        cmocka_unit_test(the_bytes_are_as_documented),
        cmocka_unit_test(the_largest_request_fits),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(sizes_are_seen_before_anything_is_believed),
        cmocka_unit_test(an_answer_comes_out_as_it_went_in),
        cmocka_unit_test(as_many_names_as_there_can_be_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

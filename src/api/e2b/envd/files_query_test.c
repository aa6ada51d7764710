/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/files_query.h"
#include "api/e2b/envd/signature.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct str token = STR("0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0");
static const usec_t now = 1700000000 * USEC_PER_SEC;

#define SIGNED "path=hello.txt&username=user&signature=v1_gUtH%2Fs9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"

static const char *refused(const char *query, enum files_operation operation, struct str sandbox_token,
                           struct str header)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct files_query q;
    struct err err;
    assert_int_equal(files_query_parse(str_of(query), &arena, &q, &err), 0);
    return files_query_refused(&q, operation, sandbox_token, header, now);
}

static void a_signature_or_the_token_opens(void **state)
{
    (void)state;
    assert_null(refused("path=a", FILES_READ, STR_NULL, STR_NULL));
    assert_null(refused("path=a&signature=junk", FILES_READ, STR_NULL, STR_NULL));
    assert_null(refused("path=a", FILES_READ, token, token));
    assert_null(refused(SIGNED, FILES_READ, token, STR_NULL));
    assert_string_equal(refused("path=a", FILES_READ, token, STR_NULL), "missing signature query parameter");
    assert_string_equal(refused(SIGNED, FILES_WRITE, token, STR_NULL), "invalid signature");
    assert_string_equal(refused(SIGNED, FILES_READ, STR("other"), STR_NULL), "invalid signature");
    assert_string_equal(refused(SIGNED "&signature_expiration=1", FILES_READ, token, STR_NULL), "invalid signature");
    assert_string_equal(refused(SIGNED, FILES_READ, token, STR("wrong")),
                        "access token present in header but does not match");
}

static void expiry_counts_for_what_is_signed(void **state)
{
    struct signature what = {.path = STR("a b"), .operation = STR("write"), .user = STR(""), .expires = true};
    struct files_query q = {.path = STR("a b"), .user = STR(""), .expires = true};
    char text[SIGNATURE_MAX];
    (void)state;
    what.expiration = q.expiration = 1699999999;
    signature_make(&what, token, text);
    q.signature = str_of(text);
    assert_string_equal(files_query_refused(&q, FILES_WRITE, token, STR_NULL, now), "signature is already expired");

    what.expiration = q.expiration = 1700000000;
    signature_make(&what, token, text);
    assert_null(files_query_refused(&q, FILES_WRITE, token, STR_NULL, now));

    what.expiration = q.expiration = -10;
    signature_make(&what, token, text);
    assert_string_equal(files_query_refused(&q, FILES_WRITE, token, STR_NULL, now), "signature is already expired");
}

static void parameters_are_decoded_once_and_given_once(void **state)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct files_query q;
    struct err err;
    (void)state;
    assert_int_equal(files_query_parse(STR("path=%2Ftmp%2Fa%252Fb+c&username=root&x=1"), &arena, &q, &err), 0);
    assert_true(str_eqc(q.path, "/tmp/a%2Fb c"));
    assert_true(str_eqc(q.user, "root"));
    assert_null(q.signature.p);
    assert_false(q.expires);

    assert_int_equal(files_query_parse(STR("path=&username"), &arena, &q, &err), 0);
    assert_non_null(q.path.p);
    assert_int_equal(q.path.n, 0);
    assert_int_equal(q.user.n, 0);

    assert_int_equal(files_query_parse(STR("path=%zz"), &arena, &q, &err), 0);
    assert_null(q.path.p);

    assert_int_equal(files_query_parse(STR("path=a&path=b"), &arena, &q, &err), -1);
    assert_int_equal(files_query_parse(STR("signature_expiration=soon"), &arena, &q, &err), -1);
    assert_int_equal(files_query_parse(STR("signature_expiration=99999999999999999999"), &arena, &q, &err), -1);
    assert_int_equal(files_query_parse(STR("username=a%00b"), &arena, &q, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_or_the_token_opens),
        cmocka_unit_test(expiry_counts_for_what_is_signed),
        cmocka_unit_test(parameters_are_decoded_once_and_given_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

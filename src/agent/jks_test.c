/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/jks.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PEM(body) "-----BEGIN CERTIFICATE-----\n" body "\n-----END CERTIFICATE-----\n"

/* Two entries, "one" and "two!", named t-1 and t-2; the digest is what keytool checks with "changeit". */
static const char two[] = "\xfe\xed\xfe\xed\0\0\0\2\0\0\0\2"
                          "\0\0\0\2\0\3t-1\0\0\0\0\0\0\0\0\0\5X.509\0\0\0\3one"
                          "\0\0\0\2\0\3t-2\0\0\0\0\0\0\0\0\0\5X.509\0\0\0\4two!"
                          "\164\276\231\342\011\362\162\111\143\236\055\240\016\052\342\032\124\166\117\051";

static void expect(struct buf *b, const void *want, size_t n)
{
    assert_int_equal(jks_end(b), 0);
    assert_int_equal(buf_len(b), n);
    assert_memory_equal(buf_data(b), want, n);
}

static void test_made(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    size_t known = jks_begin(&b, STR_NULL);
    jks_add_pem(&b, known, STR("# comment\n" PEM("b25l") "\r\n" PEM("dH\r\n dvIQ==")), "t");
    expect(&b, two, sizeof(two) - 1);
    assert_true(jks_is(str_n(two, sizeof(two) - 1)));
}

static void test_added_to(void **state)
{
    (void)state;
    AUTO_BUF struct buf one = BUF_INIT(4096);
    AUTO_BUF struct buf more = BUF_INIT(4096);
    size_t known = jks_begin(&one, STR_NULL);
    jks_add_pem(&one, known, STR(PEM("b25l")), "t");
    assert_int_equal(jks_end(&one), 0);
    known = jks_begin(&more, buf_str(&one));
    jks_add_pem(&more, known, STR(PEM("b25l") PEM("dHdvIQ==") PEM("b25l")), "t"); /* the first is in there */
    expect(&more, two, sizeof(two) - 1);
}

static void test_what_is_no_certificate(void **state)
{
    (void)state;
    static const char empty[] = "\xfe\xed\xfe\xed\0\0\0\2\0\0\0\0"
                                "\342\150\156\105\373\103\337\244\331\222\335\101\316\266\262\034\143\060\327\222";
    AUTO_BUF struct buf b = BUF_INIT(4096);
    size_t known = jks_begin(&b, STR("\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1 too short"));
    jks_add_pem(&b, known, STR(PEM("") PEM("!") PEM("b25l-") "-----BEGIN CERTIFICATE-----\nb25l\n"), "t");
    expect(&b, empty, sizeof(empty) - 1);
    assert_false(jks_is(STR_NULL));
    assert_false(jks_is(STR("0\x82\x01\x01\2\1\3 as other formats begin, for long enough")));
}

static void test_too_much(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(50);
    size_t known = jks_begin(&b, STR_NULL);
    jks_add_pem(&b, known, STR(PEM("b25l") PEM("dHdvIQ==")), "t");
    assert_int_equal(jks_end(&b), -ENOBUFS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made), cmocka_unit_test(test_added_to),
                                       cmocka_unit_test(test_what_is_no_certificate), cmocka_unit_test(test_too_much)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

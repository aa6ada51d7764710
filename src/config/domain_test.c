/* SPDX-License-Identifier: Apache-2.0 */
#include "config/domain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PEM "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"

static void names(void **state)
{
    (void)state;
    static const char *const good[] = {"sandbox.localhost", "a.b", "x-1.example.org", "1.2.3.example",
                                       "xn--bcher-kva.example"};
    static const char *const bad[] = {"",     "localhost", "org.",  ".org",    "a..b",      "A.b",   "a.b.",  "-a.b",
                                      "a-.b", "a_b.c",     "*.a.b", "a.b:443", "127.0.0.1", "a b.c", "a/b.c", "a.b\n"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(domain_is_name(str_of(good[i])));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(domain_is_name(str_of(bad[i])));
    assert_false(domain_is_name(STR_NULL));
    char text[256];
    memset(text, 'a', sizeof(text));
    text[100] = text[50] = text[150] = '.';
    assert_true(domain_is_name(str_n(text, 200)));
    assert_false(domain_is_name(str_n(text, 201)));
    text[100] = 'a';
    assert_false(domain_is_name(str_n(text, 200))); /* a label of 99 */
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(DOMAIN_FILE_MAX);
    for (int own = 0; own < 2; own++) {
        struct domain d = {STR("sandbox.localhost"), STR(PEM), own}, again;
        buf_clear(&b);
        assert_int_equal(domain_format(&d, &b), 0);
        assert_int_equal(domain_parse(buf_str(&b), &again), 0);
        assert_true(str_eq(again.name, d.name) && str_eq(again.pem, d.pem) && again.is_own == d.is_own);
    }
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        PEM,
                                        "domain: a.b\n",
                                        "domain: a.b\n" PEM,
                                        "domain: a.b\nsource: own\n",
                                        "domain: a.b\nsource: mine\n" PEM,
                                        "domain: a\nsource: own\n" PEM,
                                        "source: own\ndomain: a.b\n" PEM,
                                        "domain: a.b\nsource: own\n\n" PEM};
    struct domain d = {.is_own = true};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_int_equal(domain_parse(str_of(texts[i]), &d), -EINVAL);
    assert_null(d.name.p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

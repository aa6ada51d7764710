/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/hostname.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define LABEL63 "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0"
#define NAME252                                                                                                        \
    LABEL63 "." LABEL63 "." LABEL63 "."                                                                                \
            "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwx"

static void names_have_one_form(void **state)
{
    static const struct {
        const char *text, *name;
    } cases[] = {
        {"example.com", "example.com"},
        {"ALLOWED.TEST.", "allowed.test"},
        {"Ex-Ample.CoM", "ex-ample.com"},
        {"localhost", "localhost"},
        {"a", "a"},
        {"_dmarc.example.com", "_dmarc.example.com"},
        {"a_b.c", "a_b.c"},
        {"_", "_"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"XN--P1AI", "xn--p1ai"},
        {"1.2.3.4.in-addr.arpa", "1.2.3.4.in-addr.arpa"},
        {"127.0.0.1.nip.io", "127.0.0.1.nip.io"},
        {"0x7f.1.example", "0x7f.1.example"},
        {"1a", "1a"},
        {"0xg", "0xg"},
        {"a.0x7fz", "a.0x7fz"},
        {LABEL63, LABEL63},
        {NAME252 "x", NAME252 "x"},
        {NAME252 "x.", NAME252 "x"},
        {"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.a.b.c.d.e.f",
         "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.a.b.c.d.e.f"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char name[HOSTNAME_MAX + 1], again[HOSTNAME_MAX + 1];
        if (!hostname_normalise(str_of(cases[i].text), name))
            fail_msg("%s is a name", cases[i].text);
        assert_string_equal(name, cases[i].name);
        assert_true(hostname_normalise(str_of(name), again));
        assert_string_equal(name, again);
    }
}

static void what_is_no_name(void **state)
{
    static const char *const cases[] = {
        "",
        ".",
        "..",
        "a..",
        ".a",
        "a..b",
        "a.b..",
        "-a",
        "a-",
        "a.-b",
        "a-.b",
        "xn--",
        "xn--.com",
        /* addresses, also as inet_aton() and browsers read them */
        "1.2.3.4",
        "1.2.3.4.",
        "127.1",
        "127.1.",
        "0",
        "3325256770",
        "0x7f.1",
        "0x7f000001",
        "0xC6336442",
        "0306.0063.0144.0102",
        "1.2.3.0x4",
        "example.0x",
        "example.0x.",
        "example.09",
        "example.123",
        "a.1",
        "::1",
        "[::1]",
        "::ffff:1.2.3.4",
        "fe80::1%eth0",
        /* encodings and lookalikes */
        "denied.test%00.allowed.test",
        "a%2eb",
        "a%2e",
        "denied.test#allowed.test",
        "denied.test\\allowed.test",
        "denied.test/allowed.test",
        "denied.test?allowed.test",
        "user@denied.test",
        "denied.test:443",
        "denied.test:443:80",
        "a b",
        " a",
        "a ",
        "a\t",
        "a\n",
        "a\r\n",
        "a\x7f",
        "allowed\xe3\x80\x82test",
        "allowed\xef\xbc\x8etest",
        "b\xc3\xbc"
        "cher.example",
        "\xf0\x9f\x92\xa9.example",
        "a\x80",
        "*",
        "*.example.com",
        "a*.example.com",
        "a,b",
        "a;b",
        "a'b",
        "a\"b",
        "a|b",
        "http://a",
        LABEL63 "a",
        "a." LABEL63 "a.b",
        NAME252 "xy",
        NAME252 "xy.",
        "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.a.b.c.d.e.f.g",
    };
    char name[HOSTNAME_MAX + 1] = "untouched", pattern[HOSTNAME_MAX + 3];
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (hostname_normalise(str_of(cases[i]), name))
            fail_msg("\"%s\" was taken for a name", cases[i]);
    assert_false(hostname_normalise(str_n("denied.test\0.allowed.test", 25), name));
    assert_false(hostname_normalise(str_n("a\0", 2), name));
    assert_false(hostname_normalise(str_n("\0", 1), name));
    assert_false(hostname_normalise(STR_NULL, name));
    assert_string_equal(name, "untouched");

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (strcmp(cases[i], "*") != 0 && strcmp(cases[i], "*.example.com") != 0 &&
            hostname_pattern_normalise(str_of(cases[i]), pattern))
            fail_msg("\"%s\" was taken for a pattern", cases[i]);
}

static void every_byte_that_may_not_be_in_a_name(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        const char text[3] = {'a', (char)c, 'b'};
        char name[HOSTNAME_MAX + 1];
        bool is_allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || c == '.';
        assert_int_equal(hostname_normalise(str_n(text, 3), name), is_allowed);
    }
}

static void patterns_have_one_form(void **state)
{
    static const struct {
        const char *text, *pattern; /* NULL: none */
    } cases[] = {
        {"*", "*"},
        {"*.Example.COM.", "*.example.com"},
        {"Example.com.", "example.com"},
        {"*.com", "*.com"},
        {"*." NAME252 "x", "*." NAME252 "x"},
        {"", NULL},
        {"*.", NULL},
        {"*..", NULL},
        {"*..com", NULL},
        {"**", NULL},
        {"**.com", NULL},
        {"*.*", NULL},
        {"*.*.com", NULL},
        {"a.*", NULL},
        {"a.*.com", NULL},
        {"*a.com", NULL},
        {"*.1", NULL},
        {"*.0x7f", NULL},
        {"*.1.2.3.4", NULL},
        {"*. com", NULL},
        {".example.com", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char pattern[HOSTNAME_MAX + 3];
        if (hostname_pattern_normalise(str_of(cases[i].text), pattern) != !!cases[i].pattern)
            fail_msg("\"%s\" is %s pattern", cases[i].text, cases[i].pattern ? "a" : "no");
        if (cases[i].pattern)
            assert_string_equal(pattern, cases[i].pattern);
    }
    assert_false(hostname_pattern_normalise(str_n("*\0", 2), (char[HOSTNAME_MAX + 3]){0}));
    assert_false(hostname_pattern_normalise(str_n("*.a\0", 4), (char[HOSTNAME_MAX + 3]){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_one_form),
        cmocka_unit_test(what_is_no_name),
        cmocka_unit_test(every_byte_that_may_not_be_in_a_name),
        cmocka_unit_test(patterns_have_one_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static usec_t now;

static usec_t clock_of_test(void)
{
    return now;
}

static struct names *with_clock(void)
{
    struct names *m = names_new();
    names_set_clock(m, clock_of_test);
    return m;
}

static void pass(uint64_t seconds)
{
    now += seconds * USEC_PER_SEC;
}

static struct netaddr addr(const char *text)
{
    struct netaddr a = {0};
    assert_true(netaddr_parse(str_of(text), &a));
    return a;
}

/* The i-th of many addresses. */
static struct netaddr nth(uint32_t i)
{
    return (struct netaddr){.family = 4, .bytes = {20, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i}};
}

static bool collect(void *ctx, const char *name)
{
    char *seen = ctx;
    size_t n = strlen(seen);
    snprintf(seen + n, 256 - n, "%s ", name);
    return strcmp(name, "stop.test") != 0;
}

static void assert_names(struct names *m, const struct netaddr *a, const char *wanted)
{
    char seen[256] = "";
    names_each_of(m, a, collect, seen);
    assert_string_equal(seen, wanted);
}

static void an_address_has_the_names_it_was_answered_for(void **state)
{
    struct names *m = with_clock();
    struct netaddr a = addr("8.8.8.8"), b = addr("2606:4700::1"), mapped = addr("::ffff:8.8.8.8"),
                   other = addr("808:808::");
    (void)state;
    assert_false(names_has(m, &a, "a.test"));
    assert_names(m, &a, "");
    names_add(m, &a, "a.test", 300);
    names_add(m, &a, "b.test", 300);
    names_add(m, &b, "a.test", 300);
    assert_true(names_has(m, &a, "a.test"));
    assert_true(names_has(m, &a, "b.test"));
    assert_true(names_has(m, &mapped, "b.test"));
    assert_true(names_has(m, &b, "a.test"));
    assert_false(names_has(m, &b, "b.test"));
    assert_false(names_has(m, &other, "a.test"));
    assert_false(names_has(m, &a, "a.tes"));
    assert_false(names_has(m, &a, "a.test.x"));
    assert_names(m, &a, "b.test a.test ");
    names_add(m, &a, "a.test", 300);
    assert_names(m, &a, "a.test b.test ");
    names_add(m, &a, "stop.test", 300);
    names_add(m, &a, "c.test", 300);
    assert_names(m, &a, "c.test stop.test ");
    assert_int_equal(names_count(m), 2);
    names_free(m);
    names_free(NULL);
}

static void names_are_kept_a_minute_longer_than_they_live(void **state)
{
    static const struct {
        uint32_t ttl;
        uint64_t kept;
    } cases[] = {{0, 60}, {1, 61}, {300, 360}, {86400, 86460}, {86401, 86460}, {UINT32_MAX, 86460}};
    struct netaddr a = addr("8.8.8.8");
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct names *m = with_clock();
        names_add(m, &a, "a.test", cases[i].ttl);
        pass(cases[i].kept - 1);
        assert_true(names_has(m, &a, "a.test"));
        pass(1);
        assert_false(names_has(m, &a, "a.test"));
        assert_names(m, &a, "");
        assert_int_equal(names_count(m), 0);
        names_free(m);
    }
}

static void each_name_has_its_own_time(void **state)
{
    struct names *m = with_clock();
    struct netaddr a = addr("8.8.8.8");
    (void)state;
    names_add(m, &a, "long.test", 1000);
    names_add(m, &a, "short.test", 10);
    names_add(m, &a, "longer.test", 2000);
    names_add(m, &a, "long.test", 0); /* a shorter answer takes nothing away */
    assert_names(m, &a, "long.test longer.test short.test ");
    pass(70);
    assert_names(m, &a, "long.test longer.test ");
    pass(1000);
    assert_names(m, &a, "longer.test ");
    names_add(m, &a, "longer.test", 2000);
    pass(2000);
    assert_true(names_has(m, &a, "longer.test"));
    pass(60);
    assert_false(names_has(m, &a, "longer.test"));
    names_free(m);
}

static void the_name_that_was_not_answered_for_longest_goes_first(void **state)
{
    struct names *m = with_clock();
    struct netaddr a = addr("8.8.8.8");
    char name[16];
    (void)state;
    for (int i = 0; i < NAMES_PER_ADDRESS_MAX; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        names_add(m, &a, name, 300);
    }
    names_add(m, &a, "n0", 300);
    names_add(m, &a, "new", 300);
    assert_names(m, &a, "new n0 n7 n6 n5 n4 n3 n2 ");
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "x%d", i);
        names_add(m, &a, name, 300);
    }
    assert_names(m, &a, "x99 x98 x97 x96 x95 x94 x93 x92 ");
    assert_int_equal(names_count(m), 1);
    names_free(m);
}

static void the_address_that_was_not_used_for_longest_goes_first(void **state)
{
    struct names *m = with_clock();
    struct netaddr a;
    (void)state;
    for (uint32_t i = 0; i < NAMES_ADDRESSES_MAX; i++) {
        a = nth(i);
        names_add(m, &a, "a.test", 300);
    }
    assert_int_equal(names_count(m), NAMES_ADDRESSES_MAX);
    a = nth(0);
    assert_true(names_has(m, &a, "a.test")); /* that is a use */
    a = nth(NAMES_ADDRESSES_MAX);
    names_add(m, &a, "a.test", 300);
    assert_int_equal(names_count(m), NAMES_ADDRESSES_MAX);
    a = nth(1);
    assert_false(names_has(m, &a, "a.test"));
    for (uint32_t i = 0; i <= NAMES_ADDRESSES_MAX; i++) {
        a = nth(i);
        assert_int_equal(names_has(m, &a, "a.test"), i != 1);
    }
    for (uint32_t i = 0; i < 10 * NAMES_ADDRESSES_MAX; i++) {
        a = nth(1000000 + i);
        names_add(m, &a, "b.test", 300);
    }
    assert_int_equal(names_count(m), NAMES_ADDRESSES_MAX);
    a = nth(0);
    assert_false(names_has(m, &a, "a.test"));
    names_free(m);
}

static void it_has_the_machines_clock(void **state)
{
    struct names *m = names_new();
    struct netaddr a = addr("8.8.8.8");
    (void)state;
    names_add(m, &a, "a.test", 300);
    assert_true(names_has(m, &a, "a.test"));
    names_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_the_names_it_was_answered_for),
        cmocka_unit_test(names_are_kept_a_minute_longer_than_they_live),
        cmocka_unit_test(each_name_has_its_own_time),
        cmocka_unit_test(the_name_that_was_not_answered_for_longest_goes_first),
        cmocka_unit_test(the_address_that_was_not_used_for_longest_goes_first),
        cmocka_unit_test(it_has_the_machines_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

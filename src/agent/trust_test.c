/* SPDX-License-Identifier: Apache-2.0 */
/* TRUST. */
#include "agent/jks.h"
#include "agent/test_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PEM "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
#define SYSTEM "-----BEGIN CERTIFICATE-----\ndHdvIQ==\n-----END CERTIFICATE-----"

static uint32_t open_trust(const char *file, const char *bundle, const char *java, const char *pem)
{
    struct buf *b = rig_request(WIRE_TRUST);
    wire_put_str(b, str_of(file));
    wire_put_str(b, str_of(bundle));
    wire_put_str(b, str_of(java));
    wire_put_str(b, str_of(pem));
    return rig_open(&rig, b);
}

static void trust(const char *pem)
{
    rig_expect_end(
        &rig, open_trust(rig_path(&rig, "a/new/ca.crt"), rig_path(&rig, "b/bundle"), rig_path(&rig, "c/cacerts"), pem),
        0, "");
}

static bool java_holds(const char *der)
{
    struct stat st;
    const char *path = rig_path(&rig, "c/cacerts"), *store = rig_read(path);
    assert_int_equal(stat(path, &st), 0);
    assert_true(jks_is(str_n(store, (size_t)st.st_size)));
    return memmem(store, (size_t)st.st_size, der, strlen(der));
}

static void test_where_nothing_is(void **state)
{
    (void)state;
    struct stat st;
    trust(PEM);
    assert_string_equal(rig_read(rig_path(&rig, "a/new/ca.crt")), PEM);
    assert_string_equal(rig_read(rig_path(&rig, "b/bundle")), PEM);
    assert_true(java_holds("one"));
    assert_int_equal(stat(rig_path(&rig, "b/bundle"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0644);
    assert_int_equal(st.st_uid, 0);
}

static void test_beside_what_is_there(void **state)
{
    (void)state;
    assert_int_equal(mkdir(rig_path(&rig, "b"), 0755), 0);
    rig_write(rig_path(&rig, "b/bundle"), SYSTEM);
    trust(PEM);
    assert_string_equal(rig_read(rig_path(&rig, "b/bundle")), SYSTEM "\n" PEM);
    assert_true(java_holds("one") && java_holds("two!"));
    struct stat before, after;
    assert_int_equal(stat(rig_path(&rig, "c/cacerts"), &before), 0);
    trust(PEM); /* once is enough */
    assert_string_equal(rig_read(rig_path(&rig, "b/bundle")), SYSTEM "\n" PEM);
    assert_int_equal(stat(rig_path(&rig, "c/cacerts"), &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    rig_write(rig_path(&rig, "b/bundle"), ""); /* what Java trusts by itself stays */
    trust(PEM);
    assert_true(java_holds("two!"));
}

static void test_what_it_refuses(void **state)
{
    (void)state;
    char want[200];
    assert_int_equal(mkdir(rig_path(&rig, "b"), 0755), 0);
    assert_int_equal(mkfifo(rig_path(&rig, "b/bundle"), 0600), 0);
    (void)snprintf(want, sizeof(want), "error reading file: open %s: invalid argument", rig_path(&rig, "b/bundle"));
    rig_expect_end(&rig, open_trust(rig_path(&rig, "f"), rig_path(&rig, "b/bundle"), rig_path(&rig, "j"), PEM),
                   ERR_INVALID_ARGUMENT, want);
    rig_expect_end(&rig, open_trust("relative", "/b", "/c", PEM), ERR_INVALID_ARGUMENT, "malformed request");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_where_nothing_is),
        TEST(test_beside_what_is_there),
        TEST(test_what_it_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

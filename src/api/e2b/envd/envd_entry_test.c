/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/envd_entry.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void permissions_read(uint32_t mode, const char *expected)
{
    char text[ENTRY_PERMISSIONS_MAX];
    entry_permissions(mode, text);
    assert_string_equal(text, expected);
}

static void permissions_are_letters_of_kind_then_nine(void **state)
{
    (void)state;
    permissions_read(0100644, "-rw-r--r--");
    permissions_read(0040755, "drwxr-xr-x");
    permissions_read(0120777, "Lrwxrwxrwx");
    permissions_read(0041777, "dtrwxrwxrwx");
    permissions_read(0104755, "urwxr-xr-x");
    permissions_read(0102755, "grwxr-xr-x");
    permissions_read(0010600, "prw-------");
    permissions_read(0020666, "Dcrw-rw-rw-");
    permissions_read(0060660, "Drw-rw----");
    permissions_read(0140000, "S---------");
    permissions_read(0047777, "dugtrwxrwxrwx");
}

static void entry_reads(const struct file_entry *entry, const char *expected)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    entry_append(&b, entry, false);
    buf_append_char(&b, '\0');
    assert_string_equal(buf_data(&b), expected);
}

static void an_entry_leaves_out_what_is_default(void **state)
{
    const struct pair metadata[] = {{STR("author"), STR("a\"b")}, {STR("n"), STR("1")}};
    struct file_entry entry = {
        .name = STR("a.txt"),
        .path = STR("/home/user/a.txt"),
        .owner = STR("user"),
        .group = STR("user"),
        .type = WIRE_FILE_REGULAR,
        .mode = 0100644,
        .link_mode = 0100644,
        .size = 5,
        .mtime_ns = 1700000000123456789,
    };
    (void)state;
    entry_reads(
        &entry,
        "{\"name\":\"a.txt\",\"type\":\"FILE_TYPE_FILE\",\"path\":\"/home/user/a.txt\",\"size\":\"5\",\"mode\":420,"
        "\"permissions\":\"-rw-r--r--\",\"owner\":\"user\",\"group\":\"user\","
        "\"modifiedTime\":\"2023-11-14T22:13:20.123456789Z\"}");

    entry.metadata = metadata;
    entry.n_metadata = 2;
    entry.size = 0;
    entry.mtime_ns = 1700000000000000000;
    entry_reads(&entry, "{\"name\":\"a.txt\",\"type\":\"FILE_TYPE_FILE\",\"path\":\"/home/user/a.txt\",\"mode\":420,"
                        "\"permissions\":\"-rw-r--r--\",\"owner\":\"user\",\"group\":\"user\","
                        "\"modifiedTime\":\"2023-11-14T22:13:20Z\",\"metadata\":{\"author\":\"a\\\"b\",\"n\":\"1\"}}");
}

static void a_link_tells_its_target_and_a_broken_one_has_no_type(void **state)
{
    struct file_entry entry = {
        .name = STR("l"),
        .path = STR("/l"),
        .owner = STR("root"),
        .group = STR("root"),
        .type = WIRE_FILE_UNKNOWN,
        .link_mode = 0120777,
        .size = 7,
        .mtime_ns = 1700000000123000000,
        .is_link = true,
        .target = STR("/l"),
    };
    (void)state;
    entry_reads(&entry,
                "{\"name\":\"l\",\"path\":\"/l\",\"size\":\"7\",\"permissions\":\"Lrwxrwxrwx\",\"owner\":\"root\","
                "\"group\":\"root\",\"modifiedTime\":\"2023-11-14T22:13:20.123Z\",\"symlinkTarget\":\"/l\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permissions_are_letters_of_kind_then_nine),
        cmocka_unit_test(an_entry_leaves_out_what_is_default),
        cmocka_unit_test(a_link_tells_its_target_and_a_broken_one_has_no_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

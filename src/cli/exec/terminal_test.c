/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/exec/terminal.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_escaped(struct str text, const char *expected)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    terminal_escape(&b, text);
    AUTO_FREE char *got = buf_take(&b);
    assert_string_equal(got ? got : "", expected);
}

static void nothing_moves_the_cursor(void **state)
{
    (void)state;
    assert_escaped(STR("plain text"), "plain text");
    assert_escaped(STR("\xc3\xbc \xe6\x97\xa5 \xf0\x9f\x98\x80"), "\xc3\xbc \xe6\x97\xa5 \xf0\x9f\x98\x80");
    assert_escaped(STR("a\x1b[2Jb\r\n\t\a\x7f"), "a\\x1b[2Jb\\x0d\\x0a\\x09\\x07\\x7f");
    assert_escaped(str_n("a\0b", 3), "a\\x00b");
    assert_escaped(STR("\xc2\x9b"
                       "31m"),
                   "\\xc2\\x9b31m"); /* CSI as one C1 character */
    assert_escaped(STR("\xe2\x80\xae"
                       "txt.exe"),
                   "\\xe2\\x80\\xaetxt.exe"); /* right-to-left override */
    assert_escaped(STR("\xe2\x81\xa6"
                       "x\xe2\x80\x94y"),
                   "\\xe2\\x81\\xa6x\xe2\x80\x94y"); /* isolate; an em dash is fine */
    assert_escaped(STR("\xff\xc3"), "\\xff\\xc3");
    assert_escaped(STR("\xe6\x97"), "\\xe6\\x97");
    assert_escaped(STR("\xc0\x9b"), "\\xc0\\x9b");
    assert_escaped(STR(""), "");
}

static void pipes_get_the_bytes(void **state)
{
    (void)state;
    char text[256] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");
    terminal_print(out, false, STR("a\x1b"));
    terminal_print(out, true, STR("b\x1b"));
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "a\x1b"
                              "b\\x1b");
}

static void columns_are_aligned(void **state)
{
    (void)state;
    struct table t;
    char text[256] = "";
    table_init(&t, 3);
    table_add(&t, STR("ID"));
    table_add(&t, STR("NAME"));
    table_add(&t, STR("END"));
    table_addf(&t, "%d", 12345);
    table_add(&t, STR("\xc3\xbc\n"));
    table_add(&t, STR(""));
    FILE *out = fmemopen(text, sizeof(text), "w");
    table_print(&t, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "ID     NAME   END\n"
                              "12345  \xc3\xbc\\x0a  \n");
    table_fini(&t);
}

static void long_cells_are_cut_between_characters(void **state)
{
    (void)state;
    struct table t;
    char text[128] = "";
    table_init(&t, 4);
    table_add_cut(&t, STR("abcd"), 4);
    table_add_cut(&t, STR("abcde"), 4);
    table_add_cut(&t, STR("abc\xc3\xbc"), 4);
    table_add_cut(&t, STR(""), 0);
    FILE *out = fmemopen(text, sizeof(text), "w");
    table_print(&t, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "abcd  abcd...  abc...  \n");
    table_fini(&t);
}

static void a_file_is_no_terminal(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    struct terminal t = {0};
    uint16_t columns = 1, rows = 2;
    assert_true(terminal_raw(&t, fileno(file)) < 0);
    assert_false(t.is_raw);
    terminal_restore(&t);
    assert_true(terminal_size(fileno(file), &columns, &rows) < 0);
    assert_int_equal(columns, 1);
    assert_int_equal(fclose(file), 0);
}

static void the_last_column_is_broken_to_the_terminals_width(void **state)
{
    (void)state;
    const struct winsize size = {.ws_row = 24, .ws_col = 30};
    char got[256] = "";
    struct table t;
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0 && ioctl(ours, TIOCSWINSZ, &size) == 0);
    /* By fopen() a session's leader would get it for its own, and a hang-up in the end. */
    FILE *out = fdopen(open(ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC), "r+");
    assert_non_null(out);
    table_init(&t, 2);
    table_add(&t, STR("one"));
    table_add(&t, STR("1234567890 1234567890 12 \xc3\xbc 45678 x"));
    table_add(&t, STR("a"));
    table_add(&t, STR("without-a-space-it-stays-as-it-is-however-long"));
    table_print(&t, out);
    table_fini(&t);
    assert_int_equal(fflush(out), 0);
    for (size_t n = 0; !strstr(got, "long\r\n");) { /* it comes in pieces */
        ssize_t r = read(ours, got + n, sizeof(got) - 1 - n);
        assert_true(r > 0);
        n += (size_t)r;
    }
    assert_string_equal(got, "one  1234567890 1234567890 12\r\n     \xc3\xbc 45678 x\r\n"
                             "a    without-a-space-it-stays-as-it-is-however-long\r\n");
    (void)fclose(out);
    (void)close(ours);
}

static void progress_is_for_terminals_that_can_show_it(void **state)
{
    (void)state;
    struct terminal_progress p;
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), before = dup(STDERR_FILENO);
    assert_true(ours >= 0 && before >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0);
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_int_equal(dup2(theirs, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    progress_start(&p, false);
    bool normal = p.is_on;
    progress_start(&p, true);
    bool quiet = p.is_on;
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    progress_start(&p, false);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    assert_true(normal);
    assert_false(quiet);
    assert_false(p.is_on);
    (void)close(before);
    (void)close(theirs);
    (void)close(ours);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_column_is_broken_to_the_terminals_width),
        cmocka_unit_test(nothing_moves_the_cursor),
        cmocka_unit_test(pipes_get_the_bytes),
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(long_cells_are_cut_between_characters),
        cmocka_unit_test(a_file_is_no_terminal),
        cmocka_unit_test(progress_is_for_terminals_that_can_show_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Phases are told, warnings and errors shown, and what else the builder says when something failed, however it is cut
 * into pieces. */
#include "base/buf.h"
#include "base/fd.h"
#include "coved/storage/progress.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static char shown[2 * PROGRESS_KEPT_MAX];

static const char *run_to(bool ok, bool is_terminal, const char *messages, size_t piece, uint64_t bytes)
{
    struct progress p;
    struct str rest = str_of(messages);
    int fd = memfd_create("progress-test", MFD_CLOEXEC);
    progress_init(&p, fd, is_terminal);
    for (; rest.n; rest = str_n(rest.p + MIN(piece, rest.n), rest.n - MIN(piece, rest.n)))
        progress_messages(&p, str_n(rest.p, MIN(piece, rest.n)));
    if (bytes)
        progress_bytes(&p, bytes);
    progress_end(&p, ok);
    ssize_t n = pread(fd, shown, sizeof(shown) - 1, 0);
    assert_true(n > 0);
    shown[n] = 0;
    (void)close(fd);
    return shown;
}

static const char *run(bool is_terminal, const char *messages, size_t piece, uint64_t bytes)
{
    return run_to(true, is_terminal, messages, piece, bytes);
}

static const char messages[] = "I: automatically chosen mode: root\n"
                               "I: downloading packages with apt...\n"
                               "I: installing remaining packages inside the chroot...\n"
                               "W: something to know\n"
                               "Setting up x (1.0) ...\n"
                               "E: it failed\n";

static void test_phases(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 50; piece += 7) {
        const char *text = run(false, messages, piece, 0);
        const char *down = strstr(text, " s, downloading packages\n"),
                   *install = strstr(text, " s, installing packages\n");
        assert_true(down && install && down < install);
        assert_non_null(strstr(text, "\nW: something to know\nSetting up x (1.0) ...\nE: it failed\n"));
        assert_null(strstr(text, "chosen mode"));
        assert_null(strstr(text, "unpacked"));
        assert_null(strchr(text, '\r'));
    }
}

static const char noise[] = "I: running --customize-hook in shell: sh -c x\n"
                            "Adding /usr/lib/locale/C.utf8\n"
                            "W: something to know\n"
                            "no newline";

static void test_noise(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 50; piece += 7) {
        const char *text = run(false, noise, piece, 0);
        assert_null(strstr(text, "Adding"));
        assert_null(strstr(text, "no newline"));
        assert_non_null(strstr(text, " s, setting up\nW: something to know\n"));
        text = run_to(false, false, noise, piece, 0);
        assert_non_null(
            strstr(text, "\nW: something to know\nAdding /usr/lib/locale/C.utf8\nno newline\ncove: building"));
        assert_non_null(strstr(text, " s, failed\n"));
    }
    assert_non_null(
        strstr(run_to(false, true, noise, 100, 0), "\r\033[KAdding /usr/lib/locale/C.utf8\nno newline\n\r"));
}

/* Of much, the end, which says why. */
static void test_much_noise(void **state)
{
    (void)state;
    static char text[PROGRESS_KEPT_MAX * 3];
    size_t n = 0;
    while (n < sizeof(text) - 32)
        n += (size_t)snprintf(text + n, 32, "%zu\n", n);
    (void)snprintf(text + n, 32, "and so it failed\n");
    for (size_t piece = 100; piece < 10000; piece *= 10) {
        const char *found = run_to(false, false, text, piece, 0), *end = strstr(found, "\nand so it failed\n");
        assert_non_null(end);
        assert_true(end - found > PROGRESS_KEPT_MAX - 64 && end - found < PROGRESS_KEPT_MAX + 128);
    }
}

static void test_terminal(void **state)
{
    (void)state;
    const char *text = run(true, messages, 1000, 12000000);
    assert_non_null(
        strstr(text, "\r\033[KW: something to know\n")); /* in place of the progress line, and not behind it */
    assert_non_null(strstr(text, " s, done, 12 MB unpacked\n"));
}

static void test_long_lines(void **state)
{
    (void)state;
    char line[3000], text[sizeof(line) * 2 + 64];
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = 0;
    (void)snprintf(text, sizeof(text), "I: running --customize-hook %s\nE: %s\n", line, line);
    const char *found = strchr(run(false, text, 100, 0), '\n');
    assert_non_null(found); /* after the phase: all of the error and nothing of the hook */
    assert_int_equal(strncmp(found + 1, "E: xxx", 6), 0);
    assert_int_equal(strspn(found + 4, "x"), sizeof(line) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phases),   cmocka_unit_test(test_noise),      cmocka_unit_test(test_much_noise),
        cmocka_unit_test(test_terminal), cmocka_unit_test(test_long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int saved, reading;

static void capture(void)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(saved >= 0);
    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    (void)fd_close(fds[1]);
    reading = fds[0];
}

static void captured(struct buf *b)
{
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    (void)fd_close(saved);
    assert_int_equal(fd_read_all(reading, b), 0);
    (void)fd_close(reading);
}

static void test_lines(void **state)
{
    (void)state;
    char text[3000];
    memset(text, '\n', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    log_init("cove-test", LOG_INFO);
    capture();
    log_debug("not shown");
    log_info("hello %d", 7);
    log_warn("forged\n2026-01-01T00:00:00.000Z info cove-api: line\x1b[2J\xc3\xa4");
    log_error("%s", text);
    AUTO_BUF struct buf b = BUF_INIT(65536);
    captured(&b);
    /* One line each, whatever is in them. */
    struct str rest = buf_str(&b), line;
    static const char *const wants[] = {
        "Z info cove-test: hello 7",
        "Z warning cove-test: forged\\x0a2026-01-01T00:00:00.000Z info cove-api: line\\x1b[2J\\xc3\\xa4",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wants); i++) {
        assert_true(str_split(&rest, '\n', &line));
        assert_true(str_eqc(str_sub(line, strlen("2026-11-21T10:03:07.123")), wants[i]));
    }
    assert_true(str_split(&rest, '\n', &line));
    assert_true(line.n > 1000 && line.n <= 4096);
    assert_true(str_split(&rest, '\n', &line));
    assert_int_equal(line.n, 0);
    assert_false(str_split(&rest, '\n', &line));
}

static void test_json(void **state)
{
    (void)state;
    log_init("cove-test", LOG_INFO + LOG_AS_JSON);
    capture();
    log_debug("not shown");
    log_warn("a \"quoted\\ line\n\xff");
    AUTO_BUF struct buf b = BUF_INIT(65536);
    captured(&b);
    struct str line = buf_str(&b);
    assert_true(str_starts(line, STR("{\"time\":\"2")));
    assert_true(str_eqc(str_sub(line, strlen("{\"time\":\"2026-11-21T10:03:07.123Z\"")),
                        ",\"level\":\"warning\",\"process\":\"cove-test\",\"message\":\"a "
                        "\\\"quoted\\\\ line\\u000a\\u00ff\"}\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

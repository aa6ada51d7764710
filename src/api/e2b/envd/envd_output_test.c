/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/envd_output.h"
#include "http/client/connect.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The buffer holds exactly one envelope with this message. */
static void frame_reads(struct buf *b, const char *expected)
{
    struct str message;
    assert_int_equal(buf_error(b), 0);
    assert_int_equal(connect_decode_one(buf_str(b), 1 << 20, NULL, &message), 0);
    if (!str_eqc(message, expected))
        fail_msg("got %.*s", STR_ARG(message));
    buf_clear(b);
}

static void events_are_single_envelopes(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    (void)state;
    output_start(&b, 4294967295u);
    frame_reads(&b, "{\"event\":{\"start\":{\"pid\":4294967295}}}");
    output_data(&b, WIRE_STDOUT, STR("hi"));
    frame_reads(&b, "{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}");
    output_data(&b, WIRE_STDERR, STR("\0\xff\xfe"));
    frame_reads(&b, "{\"event\":{\"data\":{\"stderr\":\"AP/+\"}}}");
    output_data(&b, WIRE_PTY, STR(""));
    frame_reads(&b, "{\"event\":{\"data\":{\"pty\":\"\"}}}");
}

static void an_end_tells_code_or_signal(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    (void)state;
    output_exit(&b, &(struct exec_exit){.code = 0});
    frame_reads(&b, "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}");
    output_exit(&b, &(struct exec_exit){.code = 3});
    frame_reads(
        &b,
        "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\",\"error\":\"exit status 3\"}}}");
    output_exit(&b, &(struct exec_exit){.signaled = true, .code = 9});
    frame_reads(&b,
                "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: killed\",\"error\":\"signal: killed\"}}}");
    output_exit(&b, &(struct exec_exit){.signaled = true, .code = 40});
    frame_reads(
        &b, "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: signal 40\",\"error\":\"signal: signal 40\"}}}");
}

static void a_full_frame_of_output_fits(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX * 2);
    static char bytes[WIRE_PAYLOAD_MAX];
    struct str message;
    (void)state;
    output_data(&b, WIRE_STDOUT, str_n(bytes, sizeof(bytes)));
    assert_int_equal(connect_decode_one(buf_str(&b), 1 << 20, NULL, &message), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_single_envelopes),
        cmocka_unit_test(an_end_tells_code_or_signal),
        cmocka_unit_test(a_full_frame_of_output_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

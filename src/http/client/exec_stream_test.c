/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client/exec_stream.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void frames_come_out_as_they_went_in(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    exec_stream_append(&b, EXEC_STREAM_STDOUT, STR("out"));
    exec_stream_append(&b, EXEC_STREAM_STDIN_EOF, STR_NULL);
    exec_stream_append_resize(&b, 300, 65535);
    struct str in = buf_str(&b);
    struct exec_stream_frame f;

    assert_int_equal(exec_stream_next(&in, &f), 1);
    assert_int_equal(f.kind, EXEC_STREAM_STDOUT);
    assert_true(str_eqc(f.payload, "out"));
    assert_int_equal(exec_stream_next(&in, &f), 1);
    assert_int_equal(f.kind, EXEC_STREAM_STDIN_EOF);
    assert_int_equal(f.payload.n, 0);
    assert_int_equal(exec_stream_next(&in, &f), 1);
    uint16_t columns, rows;
    assert_int_equal(exec_stream_parse_resize(f.payload, &columns, &rows), 0);
    assert_int_equal(columns, 300);
    assert_int_equal(rows, 65535);
    assert_int_equal(exec_stream_next(&in, &f), 0);
    assert_int_equal(in.n, 0);
}

static void the_bytes_are_as_documented(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(64);
    exec_stream_append(&b, EXEC_STREAM_STDIN, STR("hi"));
    exec_stream_append_resize(&b, 80, 24);
    static const uint8_t expected[] = {16, 2, 0, 0, 0, 'h', 'i', 18, 4, 0, 0, 0, 80, 0, 24, 0};
    assert_int_equal(buf_len(&b), sizeof(expected));
    assert_memory_equal(buf_data(&b), expected, sizeof(expected));
}

static void incomplete_frames_wait(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(64);
    exec_stream_append(&b, EXEC_STREAM_PTY, STR("text"));
    for (size_t n = 0; n < buf_len(&b); n++) {
        struct str in = str_n(buf_data(&b), n);
        struct exec_stream_frame f = {0};
        assert_int_equal(exec_stream_next(&in, &f), 0);
        assert_int_equal(in.n, n);
    }
}

static void wrong_frames_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[EXEC_STREAM_HEAD];
        size_t n;
    } bad[] = {
        {{0}, 1},
        {{7}, 1},
        {{20}, 1},
        {{255}, 1},
        {{EXEC_STREAM_STDIN_EOF, 1, 0, 0, 0}, 5},
        {{EXEC_STREAM_SIGNAL, 2, 0, 0, 0}, 5},
        {{EXEC_STREAM_RESIZE, 5, 0, 0, 0}, 5},
        {{EXEC_STREAM_STDIN, 1, 0, 1, 0}, 5},
        {{EXEC_STREAM_STDOUT, 255, 255, 255, 255}, 5},
        {{EXEC_STREAM_ERROR, 1, 16, 0, 0}, 5},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct str in = str_n(bad[i].bytes, bad[i].n);
        struct exec_stream_frame f;
        assert_int_equal(exec_stream_next(&in, &f), -EPROTO);
    }
    uint16_t columns = 1, rows = 1;
    assert_int_equal(exec_stream_parse_resize(STR("abc"), &columns, &rows), -EPROTO);
    assert_int_equal(columns, 1);
}

static void the_largest_frame_fits(void **state)
{
    (void)state;
    static char big[EXEC_STREAM_PAYLOAD_MAX];
    AUTO_BUF struct buf b = BUF_INIT(EXEC_STREAM_HEAD + EXEC_STREAM_PAYLOAD_MAX);
    exec_stream_append(&b, EXEC_STREAM_STDIN, str_n(big, sizeof(big)));
    assert_int_equal(buf_error(&b), 0);
    struct str in = buf_str(&b);
    struct exec_stream_frame f;
    assert_int_equal(exec_stream_next(&in, &f), 1);
    assert_int_equal(f.payload.n, sizeof(big));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_out_as_they_went_in), cmocka_unit_test(the_bytes_are_as_documented),
        cmocka_unit_test(incomplete_frames_wait),          cmocka_unit_test(wrong_frames_are_refused),
        cmocka_unit_test(the_largest_frame_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_header_bytes(void **state)
{
    (void)state;
    const struct wire_frame f = {.size = 0x010203, .stream = 0x04050607, .type = WIRE_DATA, .flags = WIRE_PTY};
    static const uint8_t want[] = {3, 2, 1, 0, 7, 6, 5, 4, 4, 3, 0, 0};
    uint8_t bytes[WIRE_HEADER_SIZE];
    struct wire_frame back;
    wire_header_put(&f, bytes);
    assert_memory_equal(bytes, want, sizeof(want));
    assert_int_equal(wire_header_get(bytes, &back), 0);
    assert_int_equal(back.size, f.size);
    assert_int_equal(back.stream, f.stream);
    assert_int_equal(back.type, f.type);
    assert_int_equal(back.flags, f.flags);
}

static void test_header_refused(void **state)
{
    (void)state;
    const struct wire_frame good = {.size = WIRE_PAYLOAD_MAX, .stream = 1, .type = WIRE_CLOSE};
    struct wire_frame back = {.stream = 77};
    uint8_t bytes[WIRE_HEADER_SIZE];
    wire_header_put(&good, bytes);
    assert_int_equal(wire_header_get(bytes, &back), 0);
    bytes[0] = 1; /* a byte more */
    assert_int_equal(wire_header_get(bytes, &back), -EPROTO);
    bytes[0] = 0;
    bytes[8] = 0;
    assert_int_equal(wire_header_get(bytes, &back), -EPROTO);
    bytes[8] = WIRE_WAKE + 1;
    assert_int_equal(wire_header_get(bytes, &back), -EPROTO);
    bytes[8] = WIRE_CLOSE;
    for (int i = 10; i < 12; i++) {
        bytes[i] = 1;
        assert_int_equal(wire_header_get(bytes, &back), -EPROTO);
        bytes[i] = 0;
    }
    assert_int_equal(back.stream, 1); /* untouched by the failures */
}

static void test_values(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    size_t at = wire_begin(&b, WIRE_OPEN, 5, 9);
    wire_put_u8(&b, 0xfe);
    wire_put_u16(&b, 0xfedc);
    wire_put_u32(&b, 0xfedcba98);
    wire_put_u64(&b, 0xfedcba9876543210);
    wire_put_str(&b, STR("a\0b"));
    wire_put_str(&b, STR_NULL);
    wire_end(&b, at);
    struct wire_frame f;
    assert_int_equal(wire_header_get((const uint8_t *)buf_data(&b), &f), 0);
    assert_int_equal(f.size, 1 + 2 + 4 + 8 + 7 + 4);
    assert_int_equal(f.flags, 5);
    struct wire_reader r = wire_reader_of(str_n(buf_data(&b) + WIRE_HEADER_SIZE, f.size));
    assert_int_equal(wire_get_u8(&r), 0xfe);
    assert_int_equal(wire_get_u16(&r), 0xfedc);
    assert_int_equal(wire_get_u32(&r), 0xfedcba98);
    assert_true(wire_get_u64(&r) == 0xfedcba9876543210);
    assert_true(str_eq(wire_get_str(&r), STR("a\0b")));
    assert_false(wire_done(&r));
    assert_int_equal(wire_get_str(&r).n, 0);
    assert_true(wire_done(&r));
    assert_int_equal(wire_get_u8(&r), 0);
    assert_true(r.bad);
    assert_false(wire_done(&r));
}

/* After the first value that is not there nothing is, however small. */
static void test_reader_stays_bad(void **state)
{
    (void)state;
    struct wire_reader r = wire_reader_of(STR("\xff\xff\xff\xffxyz"));
    assert_int_equal(wire_get_str(&r).n, 0);
    assert_true(r.bad);
    assert_int_equal(wire_get_u8(&r), 0);
    assert_null(wire_get_str(&r).p);
    assert_int_equal(wire_get_count(&r, 1), 0);
    r = wire_reader_of(STR_NULL);
    assert_true(wire_done(&r));
    assert_int_equal(wire_get_u16(&r), 0);
    assert_true(r.bad);
}

static void test_counts_do_not_lie(void **state)
{
    (void)state;
    struct wire_reader r = wire_reader_of(STR("\2\0\0\0aaaabbbb"));
    assert_int_equal(wire_get_count(&r, 4), 2);
    r = wire_reader_of(STR("\3\0\0\0aaaabbbb"));
    assert_int_equal(wire_get_count(&r, 4), 0);
    assert_true(r.bad);
    r = wire_reader_of(STR("\xff\xff\xff\xff"));
    assert_int_equal(wire_get_count(&r, 0), 0);
    assert_true(r.bad);
    r = wire_reader_of(STR("\0\0\0\0"));
    assert_int_equal(wire_get_count(&r, 8), 0);
    assert_true(wire_done(&r));
}

/* A frame that does not fit leaves the error in the buffer, and what was there before. */
static void test_full_buffer(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(WIRE_HEADER_SIZE + 2);
    size_t at = wire_begin(&b, WIRE_DATA, 0, 1);
    wire_put_u8(&b, 1);
    wire_put_u32(&b, 2);
    wire_put_u8(&b, 1);
    wire_end(&b, at);
    assert_int_equal(buf_error(&b), -ENOBUFS);
    assert_int_equal(buf_len(&b), WIRE_HEADER_SIZE + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_bytes),
        cmocka_unit_test(test_header_refused),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_reader_stays_bad),
        cmocka_unit_test(test_counts_do_not_lie),
        cmocka_unit_test(test_full_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

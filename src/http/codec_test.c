/* SPDX-License-Identifier: Apache-2.0 */
/* URLs, header values, Connect envelopes, SSE, gzip. */
#include "base/arena.h"
#include "base/mem.h"
#include "http/client/connect.h"
#include "http/gzip.h"
#include "http/message.h"
#include "http/sse.h"
#include "http/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void expect(struct str got, const char *wanted)
{
    if (!str_eqc(got, wanted))
        fail_msg("got \"%.*s\", not \"%s\"", STR_ARG(got), wanted);
}

static void test_url(void **state)
{
    (void)state;
    AUTO_ARENA struct arena a = ARENA_INIT;
    struct str s, path, query, v;
    assert_int_equal(url_decode(&a, STR("/a%20b+c%2Fd%c3%A4"), URL_PATH, &s), 0);
    expect(s, "/a b+c/d\xc3\xa4");
    assert_int_equal(url_decode(&a, STR("a+b%2B"), URL_QUERY, &s), 0);
    expect(s, "a b+");
    static const char *const bad[] = {"%", "%1", "%g1", "%1g", "ab%", "%%41"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(url_decode(&a, str_of(bad[i]), URL_PATH, &s), -EINVAL);
    assert_int_equal(url_decode(&a, STR("%00"), URL_PATH, &s), 0);
    assert_int_equal(s.n, 1);

    assert_int_equal(url_split_target(STR("/p/q?a=b?c"), &path, &query), 0);
    expect(path, "/p/q");
    expect(query, "a=b?c");
    assert_int_equal(url_split_target(STR("http://h:1?x"), &path, &query), 0);
    expect(path, "/");
    expect(query, "x");
    static const char *const no[] = {"", "p", "http://", "http:///p", "http://u@h/", "/a#b", "/a b", "**", "//\x7f"};
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        assert_int_equal(url_split_target(str_of(no[i]), &path, &query), -EINVAL);

    struct str q = STR("&&a=1&&b&c=&a=2&%64=x%2520&bad=%&");
    static const char *const names[] = {"a", "b", "c", "a", "%64", "bad"};
    size_t n = 0;
    struct str rest = q;
    for (struct url_param p; url_query_next(&rest, &p); n++) {
        assert_true(n < ARRAY_SIZE(names));
        expect(p.name, names[n]);
        assert_int_equal(p.value.p == NULL, n == 1);
    }
    assert_int_equal(n, ARRAY_SIZE(names));
    assert_int_equal(url_query_get(&a, q, "a", &v), 1);
    expect(v, "1");
    assert_int_equal(url_query_get(&a, q, "d", &v), 1);
    expect(v, "x%20");
    assert_int_equal(url_query_get(&a, q, "b", &v), 1);
    expect(v, "");
    assert_int_equal(url_query_get(&a, q, "bad", &v), -EINVAL);
    assert_int_equal(url_query_get(&a, q, "e", &v), 0);
    rest = STR("");
    assert_false(url_query_next(&rest, &(struct url_param){STR_NULL, STR_NULL}));

    AUTO_BUF struct buf b = BUF_INIT(100);
    assert_int_equal(url_encode(&b, STR("a/b c\xff~"), true), 0);
    expect(buf_str(&b), "a/b%20c%FF~");
}

static void test_host(void **state)
{
    (void)state;
    static const struct {
        const char *host, *name;
        int port;
    } good[] = {{"a", "a", 0},
                {"8080-i1.x.localhost:7070", "8080-i1.x.localhost", 7070},
                {"127.0.0.1:", "127.0.0.1", 0},
                {"[::1]", "::1", 0},
                {"[::1]:80", "::1", 80},
                {"a:65535", "a", 65535}};
    static const char *const bad[] = {"",    ":80", "a:b", "a:65536", "a:1:2", "[::1", "[::1]x",
                                      "a b", "a/b", "u@h", "[]",      "[a b]", "a:+1"};
    struct str name;
    uint16_t port;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(str_split_host(str_of(good[i].host), &name, &port), 0);
        expect(name, good[i].name);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (str_split_host(str_of(bad[i]), &name, &port) != -EINVAL)
            fail_msg("\"%s\" was taken", bad[i]);
    }
}

static void test_values(void **state)
{
    (void)state;
    assert_true(http_list_has(STR("keep-alive, UPGRADE"), STR("upgrade")));
    assert_false(http_list_has(STR("upgrades"), STR("upgrade")));
    assert_false(http_list_has(STR_NULL, STR("upgrade")));
    assert_true(http_is_field_value(STR("a\tb \xc3\xa4")));
    assert_false(http_is_field_value(STR("a\r\nb")));
    assert_false(http_is_field_value(STR(" a")));
    assert_false(http_is_token(STR("")));
    assert_false(http_is_token(STR("a:")));
    struct str params = STR("; charset=utf-8 ;name=\"a;\\\"b\"; x = 1"), name, value;
    assert_true(http_param_next(&params, &name, &value));
    expect(name, "charset");
    expect(value, "utf-8");
    assert_true(http_param_next(&params, &name, &value));
    expect(value, "a;\\\"b");
    assert_false(http_param_next(&params, &name, &value)); /* blanks around '=' */
    assert_int_not_equal(params.n, 0);
}

static void test_connect_one(void **state)
{
    (void)state;
    struct str m;
    assert_int_equal(connect_decode_one(STR("\0\0\0\0\2{}"), 2, NULL, &m), 0);
    expect(m, "{}");
    assert_int_equal(connect_decode_one(STR("\0\0\0\0\0"), 2, NULL, &m), 0);
    assert_int_equal(connect_decode_one(STR("\0\0\0\0\3{ }"), 2, NULL, &m), -EMSGSIZE);
    assert_int_equal(connect_decode_one(STR("\1\0\0\0\2{}"), 2, NULL, &m), -ENOTSUP);
    bool compressed = false;
    assert_int_equal(connect_decode_one(STR("\1\0\0\0\2{}"), 2, &compressed, &m), 0);
    assert_true(compressed);
    assert_int_equal(connect_decode_one(STR("\3\0\0\0\2{}"), 2, &compressed, &m), -EPROTO);
    static const struct str bad[] = {{"", 0},
                                     {"\0\0\0\0", 4},
                                     {"\2\0\0\0\2{}", 7},
                                     {"\3\0\0\0\2{}", 7},
                                     {"\0\0\0\0\2{", 6},
                                     {"\0\0\0\0\1{}", 7},
                                     {"\0\0\0\0\2{}\0\0\0\0\2{}", 14}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(connect_decode_one(bad[i], 100, NULL, &m), -EPROTO);
    assert_int_equal(connect_decode_one(STR("\0\xff\xff\xff\xff{}"), 100, NULL, &m), -EMSGSIZE);
}

static void test_connect_stream(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1000), seen = BUF_INIT(1000);
    assert_int_equal(connect_append(&b, 0, STR("{\"a\":1}")), 0);
    assert_int_equal(connect_append(&b, 0, STR("")), 0);
    assert_int_equal(connect_append(&b, 0, STR("[2]")), 0);
    for (size_t at = 0; at <= buf_len(&b); at++) {
        struct connect_decoder d;
        connect_decoder_init(&d, 7);
        struct str pieces[] = {str_n(buf_data(&b), at), str_sub(buf_str(&b), at)};
        buf_clear(&seen);
        for (size_t i = 0; i < 2; i++) {
            struct str m;
            int r;
            while ((r = connect_decoder_next(&d, &pieces[i], &m)) == CONNECT_MESSAGE)
                buf_printf(&seen, "<%.*s>", STR_ARG(m));
            assert_int_equal(r, CONNECT_NEED_MORE);
            bool between = i == 1 || at == 0 || at == 12 || at == 17 || at == buf_len(&b);
            assert_int_equal(connect_decoder_end(&d), between ? 0 : -EPROTO);
        }
        expect(buf_str(&seen), "<{\"a\":1}><><[2]>");
        connect_decoder_fini(&d);
    }
    struct connect_decoder d;
    struct str m, in = STR("\0\0\0\0\x08{}");
    connect_decoder_init(&d, 7);
    assert_int_equal(connect_decoder_next(&d, &in, &m), -EMSGSIZE);
    in = STR("\0\0\0\0\1x");
    assert_int_equal(connect_decoder_next(&d, &in, &m), -EMSGSIZE); /* sticks */
    connect_decoder_fini(&d);
}

static void test_connect_ends(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1000);
    assert_int_equal(connect_append_end(&b, ERR_OK, STR("ignored")), 0);
    assert_true(str_eq(buf_str(&b), STR("\2\0\0\0\2{}")));
    buf_clear(&b);
    assert_int_equal(connect_append_end(&b, ERR_NOT_FOUND, STR("no \"x\"")), 0);
    assert_memory_equal(buf_data(&b), "\2\0\0\0", 4);
    assert_int_equal(buf_data(&b)[4], buf_len(&b) - CONNECT_HEAD);
    expect(str_sub(buf_str(&b), 5), "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}}");
    assert_int_equal(connect_status(ERR_NOT_FOUND), 404);
    assert_int_equal(connect_status(ERR_CANCELED), 499);
    assert_int_equal(connect_status((enum err_code)99), 500);
    for (int code = ERR_OK; code < ERR_CODE_MAX; code++)
        assert_in_range(connect_status((enum err_code)code), 200, 599);
    uint64_t ms = 1;
    assert_int_equal(connect_parse_timeout(STR_NULL, &ms), 0);
    assert_int_equal(connect_parse_timeout(STR("60000"), &ms), 1);
    assert_int_equal(ms, 60000);
    assert_int_equal(connect_parse_timeout(STR("12345678901"), &ms), -EINVAL);
    assert_int_equal(connect_parse_timeout(STR("-1"), &ms), -EINVAL);
    assert_int_equal(connect_parse_timeout(STR(""), &ms), -EINVAL);
}

static void test_sse(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1000);
    struct sse_event e = {STR("7"), STR("exec"), STR("a\nb\r\nc\r")};
    assert_int_equal(sse_append(&b, &e), 0);
    expect(buf_str(&b), "id: 7\nevent: exec\ndata: a\ndata: b\ndata: c\ndata: \n\n");
    buf_clear(&b);
    e = (struct sse_event){.data = STR("")};
    assert_int_equal(sse_append(&b, &e), 0);
    expect(buf_str(&b), "data: \n\n");
    e = (struct sse_event){.id = STR("1\n2")};
    assert_int_equal(sse_append(&b, &e), -EINVAL);
}

static void compress(struct str plain, struct buf *b)
{
    AUTO(gzip_free) struct gzip *g = gzip_new(6);
    char out[1000];
    size_t n;
    int r;
    do {
        r = gzip_next(g, &plain, GZIP_FINISH, out, sizeof(out), &n);
        assert_true(r >= 0);
        assert_int_equal(buf_append(b, out, n), 0);
    } while (r != GZIP_END);
}

/* In pieces of `step` bytes with an output buffer of `cap`. */
static int expand(struct str packed, size_t step, size_t cap, uint64_t max, struct buf *b)
{
    AUTO(gunzip_free) struct gunzip *g = gunzip_new(max, 0);
    AUTO_FREE char *out = mem_alloc(cap);
    while (packed.n) {
        struct str in = str_n(packed.p, MIN(step, packed.n));
        packed = str_sub(packed, in.n);
        size_t n;
        int r;
        do {
            r = gunzip_next(g, &in, out, cap, &n);
            if (r < 0) {
                assert_int_equal(n, 0);
                assert_int_equal(gunzip_next(g, &in, out, cap, &n), r);
                return r;
            }
            assert_int_equal(buf_append(b, out, n), 0);
        } while (r == GZIP_OUTPUT);
        assert_int_equal(in.n, 0);
    }
    return gunzip_end(g);
}

static void test_gzip(void **state)
{
    (void)state;
    AUTO_BUF struct buf plain = BUF_INIT(1 << 20), packed = BUF_INIT(1 << 20), back = BUF_INIT(4 << 20);
    for (int i = 0; i < 20000; i++)
        buf_printf(&plain, "%d,", i * i);
    compress(buf_str(&plain), &packed);
    static const size_t sizes[] = {1, 7, 1000, 1 << 20};
    for (size_t i = 0; i < 16; i++) {
        buf_clear(&back);
        assert_int_equal(expand(buf_str(&packed), sizes[i / 4], sizes[i % 4], 1 << 20, &back), 0);
        assert_true(str_eq(buf_str(&back), buf_str(&plain)));
    }
    /* Two members; a member and rubbish; a piece of one; rubbish. */
    size_t one = buf_len(&packed);
    compress(STR("more"), &packed);
    buf_clear(&back);
    assert_int_equal(expand(buf_str(&packed), 11, 100, 1 << 20, &back), 0);
    assert_int_equal(buf_len(&back), buf_len(&plain) + 4);
    buf_clear(&back);
    assert_int_equal(expand(str_n(buf_data(&packed), one + 3), 1 << 20, 100, 1 << 20, &back), -EPROTO);
    buf_clear(&back);
    assert_int_equal(expand(str_n(buf_data(&packed), one - 1), 1 << 20, 100, 1 << 20, &back), -EPROTO);
    buf_clear(&back);
    assert_int_equal(expand(STR("this is not gzip"), 3, 100, 1 << 20, &back), -EPROTO);
    buf_clear(&back);
    assert_int_equal(expand(STR(""), 3, 100, 1 << 20, &back), -EPROTO);
    buf_clear(&back);
    assert_int_equal(expand(str_n(buf_data(&packed), one), 100, 100, 1000, &back), -EFBIG);
    assert_in_range(buf_len(&back), 900, 1000);
}

static void test_gzip_bomb(void **state)
{
    (void)state;
    AUTO_BUF struct buf zeros = BUF_INIT(64 << 20), packed = BUF_INIT(1 << 20), back = BUF_INIT(64 << 20);
    char *p = buf_reserve(&zeros, 64 << 20);
    assert_non_null(p);
    memset(p, 0, 64 << 20);
    buf_commit(&zeros, 64 << 20);
    compress(buf_str(&zeros), &packed);
    assert_int_equal(expand(buf_str(&packed), 4096, 65536, UINT64_MAX, &back), -EFBIG);
    assert_in_range(buf_len(&back), 512 * 1024, 4 << 20);
}

static void test_gzip_live(void **state)
{
    (void)state;
    AUTO(gzip_free) struct gzip *g = gzip_new(1);
    AUTO(gunzip_free) struct gunzip *u = gunzip_new(1000, 0);
    char packed[1000], out[1000];
    for (int i = 0; i < 10; i++) {
        struct str in = STR("a line\n");
        size_t n;
        assert_int_equal(gzip_next(g, &in, GZIP_SYNC, packed, sizeof(packed), &n), GZIP_NEED_MORE);
        struct str wire = str_n(packed, n);
        assert_int_equal(gunzip_next(u, &wire, out, sizeof(out), &n), GZIP_NEED_MORE);
        expect(str_n(out, n), "a line\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_url),         cmocka_unit_test(test_host),           cmocka_unit_test(test_values),
        cmocka_unit_test(test_connect_one), cmocka_unit_test(test_connect_stream), cmocka_unit_test(test_connect_ends),
        cmocka_unit_test(test_sse),         cmocka_unit_test(test_gzip),           cmocka_unit_test(test_gzip_bomb),
        cmocka_unit_test(test_gzip_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

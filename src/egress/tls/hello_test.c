/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "egress/tls/hello.h"
#include "egress/tls/hello_test_bytes.h"

#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static enum hello_result parse(struct str bytes, struct hello *h)
{
    hello_init(h);
    return hello_feed(h, bytes);
}

/* The same message in records of `size` bytes each. */
static void in_records(struct str message, size_t size, struct buf *to)
{
    buf_clear(to);
    while (message.n) {
        size_t n = MIN(size, message.n);
        char header[5] = {22, 3, 1, (char)(n >> 8), (char)n};
        buf_append(to, header, 5);
        buf_append(to, message.p, n);
        message = str_sub(message, n);
    }
    assert_int_equal(buf_error(to), 0);
}

/* One record as it comes from a library: nothing is decided before its last byte, and then always the same. */
static void at_every_byte(struct str bytes, struct hello *ret_hello)
{
    struct hello bytewise;
    hello_init(&bytewise);
    for (size_t n = 0; n < bytes.n; n++) {
        AUTO_BUF struct buf exact = BUF_INIT(65536); /* so that reading behind the end is seen */
        buf_append(&exact, bytes.p, n);
        assert_int_equal(hello_feed(&bytewise, buf_str(&exact)), HELLO_NEED_MORE);
        struct hello halves;
        assert_int_equal(parse(str_n(bytes.p, n), &halves), HELLO_NEED_MORE);
        assert_int_equal(hello_feed(&halves, bytes), HELLO_COMPLETE);
        assert_int_equal(halves.size, bytes.n);
    }
    assert_int_equal(hello_feed(&bytewise, bytes), HELLO_COMPLETE);
    assert_int_equal(parse(bytes, ret_hello), HELLO_COMPLETE);
    assert_true(str_eq(hello_name(&bytewise), hello_name(ret_hello)));

    AUTO_BUF struct buf cut = BUF_INIT(65536);
    for (size_t size = 1; size < bytes.n; size += 1 + size / 3) {
        in_records(str_sub(bytes, 5), size, &cut);
        if (buf_len(&cut) >= HELLO_BYTES_MAX)
            continue;
        hello_init(&bytewise);
        for (size_t n = 1; n < buf_len(&cut); n++)
            assert_int_equal(hello_feed(&bytewise, str_n(buf_data(&cut), n)), HELLO_NEED_MORE);
        assert_int_equal(hello_feed(&bytewise, buf_str(&cut)), HELLO_COMPLETE);
        assert_true(str_eq(hello_name(&bytewise), hello_name(ret_hello)));
        assert_int_equal(bytewise.alpn_len, ret_hello->alpn_len);
        assert_int_equal(bytewise.best, ret_hello->best);
        assert_int_equal(bytewise.size, buf_len(&cut));
    }
}

struct client {
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *out;
};

static void client_start(struct client *c)
{
    c->ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(c->ctx);
    SSL_CTX_set_security_level(c->ctx, 0);
}

static struct str client_hello(struct client *c, const char *name, int most)
{
    assert_int_equal(SSL_CTX_set_min_proto_version(c->ctx, TLS1_VERSION), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(c->ctx, most), 1);
    c->ssl = SSL_new(c->ctx);
    c->out = BIO_new(BIO_s_mem());
    SSL_set_bio(c->ssl, BIO_new(BIO_s_mem()), c->out);
    SSL_set_connect_state(c->ssl);
    if (name)
        assert_int_equal(SSL_set_tlsext_host_name(c->ssl, name), 1);
    assert_int_equal(SSL_do_handshake(c->ssl), -1);
    char *p;
    long n = BIO_get_mem_data(c->out, &p);
    assert_true(n > 100);
    return str_n(p, (size_t)n);
}

static void client_end(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
}

static void test_openssl(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
        struct client c;
        struct hello h;
        client_start(&c);
        assert_int_equal(SSL_CTX_set_alpn_protos(c.ctx, (const unsigned char *)"\2h2\10http/1.1", 12), 0);
        at_every_byte(client_hello(&c, "Some.Host.example", versions[i]), &h);
        assert_true(str_eq(hello_name(&h), STR("Some.Host.example")));
        assert_int_equal(h.best, versions[i]);
        assert_true(hello_alpn_has(&h, STR("h2")) && hello_alpn_has(&h, STR("http/1.1")));
        assert_false(hello_alpn_has(&h, STR("h3")) || hello_alpn_has(&h, STR("http/1")) || hello_alpn_has(&h, STR("")));
        assert_false(h.offers_ech);
        client_end(&c);
    }
    struct client c;
    struct hello h;
    client_start(&c);
    at_every_byte(client_hello(&c, NULL, TLS1_3_VERSION), &h);
    assert_int_equal(hello_name(&h).n, 0);
    assert_int_equal(h.alpn_len, 0);
    client_end(&c);
}

static int take_up(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len, SSL_SESSION **ret_session)
{
    static const unsigned char tls13_cipher[] = {0x13, 0x01}, key[32] = {7}, ticket[] = "ticket";
    (void)md;
    *ret_session = SSL_SESSION_new();
    assert_int_equal(SSL_SESSION_set_protocol_version(*ret_session, TLS1_3_VERSION), 1);
    assert_int_equal(SSL_SESSION_set_cipher(*ret_session, SSL_CIPHER_find(ssl, tls13_cipher)), 1);
    assert_int_equal(SSL_SESSION_set1_master_key(*ret_session, key, sizeof(key)), 1);
    assert_int_equal(SSL_SESSION_set_max_early_data(*ret_session, 1000), 1);
    *id = ticket;
    *id_len = sizeof(ticket) - 1;
    return 1;
}

/* A session that is taken up again, with early data right behind the hello. */
static void test_resumption(void **state)
{
    (void)state;
    struct client c;
    struct hello h;
    client_start(&c);
    SSL_CTX_set_psk_use_session_callback(c.ctx, take_up);
    at_every_byte(client_hello(&c, "again.example", TLS1_3_VERSION), &h);
    SSL_free(c.ssl);

    c.ssl = SSL_new(c.ctx);
    c.out = BIO_new(BIO_s_mem());
    SSL_set_bio(c.ssl, BIO_new(BIO_s_mem()), c.out);
    SSL_set_connect_state(c.ssl);
    size_t n;
    char *p;
    assert_int_equal(SSL_write_early_data(c.ssl, "early", 5, &n), 1);
    size_t all = (size_t)BIO_get_mem_data(c.out, &p);
    assert_int_equal(parse(str_n(p, all), &h), HELLO_COMPLETE);
    assert_true(hello_name(&h).n == 0);
    assert_true(h.size < all - 5);
    client_end(&c);
}

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void unhex(const char *hex, struct buf *to)
{
    for (; hex[0] && hex[1]; hex += 2)
        buf_append_char(to, (char)(digit(hex[0]) << 4 | digit(hex[1])));
}

static void test_other_libraries(void **state)
{
    (void)state;
    AUTO_BUF struct buf bytes = BUF_INIT(65536);
    struct hello h;
    unhex(hello_go_post_quantum, &bytes);
    assert_true(buf_len(&bytes) > 1400);
    at_every_byte(buf_str(&bytes), &h);
    assert_true(str_eq(hello_name(&h), STR("www.example.com")));
    assert_true(hello_alpn_has(&h, STR("h2")) && hello_alpn_has(&h, STR("http/1.1")));
    assert_int_equal(h.best, 0x0304);
    assert_false(h.offers_ech);
    buf_clear(&bytes);
    unhex(hello_go_ech, &bytes);
    at_every_byte(buf_str(&bytes), &h);
    assert_true(str_eq(hello_name(&h), STR("outer.example.net")));
    assert_true(h.offers_ech);
}

/* Hellos that no library makes: the parts are text, in which \x.. are bytes; lengths are put in front here. */
struct parts {
    uint16_t version;
    struct str session, ciphers, compressions;
    struct str extensions; /* without their length; p NULL: not even that */
};

static const struct parts plain = {0x0303, {NULL, 0}, {"\x13\x01", 2}, {"\0", 1}, {NULL, 0}};

static void put(struct buf *to, size_t width, size_t value)
{
    while (width--)
        buf_append_char(to, (char)(value >> (8 * width)));
}

static void put_sized(struct buf *to, size_t width, struct str s)
{
    put(to, width, s.n);
    buf_append_str(to, s);
}

static void make(const struct parts *parts, struct buf *message)
{
    AUTO_BUF struct buf body = BUF_INIT(1 << 20);
    put(&body, 2, parts->version);
    for (int i = 0; i < 32; i++)
        put(&body, 1, 0xaa);
    put_sized(&body, 1, parts->session);
    put_sized(&body, 2, parts->ciphers);
    put_sized(&body, 1, parts->compressions);
    if (parts->extensions.p)
        put_sized(&body, 2, parts->extensions);
    buf_clear(message);
    put(message, 1, 1);
    put_sized(message, 3, buf_str(&body));
    assert_int_equal(buf_error(message), 0);
}

static enum hello_result parse_parts(const struct parts *parts, struct hello *h)
{
    AUTO_BUF struct buf message = BUF_INIT(1 << 20), bytes = BUF_INIT(1 << 20);
    make(parts, &message);
    in_records(buf_str(&message), 16384, &bytes);
    return parse(buf_str(&bytes), h);
}

static enum hello_result with_extensions(struct str extensions, struct hello *h)
{
    struct parts parts = plain;
    parts.extensions = extensions;
    return parse_parts(&parts, h);
}

#define GOOD(literal) assert_int_equal(with_extensions(STR(literal), &h), HELLO_COMPLETE)
#define BAD(literal, why)                                                                                              \
    do {                                                                                                               \
        assert_int_equal(with_extensions(STR(literal), &h), HELLO_BAD);                                                \
        assert_string_equal(h.reason, why);                                                                            \
    } while (0)

static void test_server_names(void **state)
{
    (void)state;
    struct hello h;
    GOOD("\0\0\0\x06\0\x04\0\0\x01"
         "a");
    assert_true(str_eq(hello_name(&h), STR("a")));
    GOOD("\0\0\0\x08\0\x06\0\0\x03"
         "a\0b");
    assert_true(str_eq(hello_name(&h), STR("a\0b"))); /* whoever normalises it says no */
    BAD("\0\0\0\x05\0\x03\0\0\0", "server name: empty");
    BAD("\0\0\0\x02\0\0", "server name: cut");
    BAD("\0\0\0\0", "server name: cut");
    BAD("\0\0\0\x06\0\x04\x01\0\x01"
        "a",
        "server name: of unknown kind");
    BAD("\0\0\0\x0a\0\x08\0\0\x01"
        "a\0\0\x01"
        "b",
        "server name: more than one");
    BAD("\0\0\0\x0a\0\x08\0\0\x01"
        "a\0\0\x01"
        "a",
        "server name: more than one");
    BAD("\0\0\0\x06\0\x04\0\0\x01"
        "a\0\0\0\x06\0\x04\0\0\x01"
        "a",
        "server name: more than one");
    BAD("\0\0\0\x06\0\x04\0\0\x01"
        "a\xff\x01\0\0\0\0\0\x06\0\x04\0\0\x01"
        "b",
        "server name: more than one");
    BAD("\0\0\0\x06\0\x04\0\0\x02"
        "a",
        "server name: cut");
    BAD("\0\0\0\x07\0\x04\0\0\x01"
        "ab",
        "extensions: cut, or a wrong length"); /* a rest behind the list */
    AUTO_BUF struct buf b = BUF_INIT(4096);
    for (size_t n = HELLO_NAME_MAX; n <= HELLO_NAME_MAX + 1; n++) {
        buf_clear(&b);
        put(&b, 4, n + 5);
        put(&b, 2, n + 3);
        put(&b, 1, 0);
        put(&b, 2, n);
        for (size_t i = 0; i < n; i++)
            put(&b, 1, 'x');
        assert_int_equal(with_extensions(buf_str(&b), &h), n == HELLO_NAME_MAX ? HELLO_COMPLETE : HELLO_BAD);
        assert_true(n > HELLO_NAME_MAX || hello_name(&h).n == n);
    }
}

static void test_other_extensions(void **state)
{
    (void)state;
    struct hello h;
    GOOD("");
    GOOD("\x0a\x0a\0\0\x1a\x1a\0\x01\0"); /* GREASE */
    BAD("\x0a\x0a\0\0\x0a\x0a\0\x01\0", "two extensions of one kind");
    BAD("\x0a\x0a\0", "extensions: cut, or a wrong length");
    BAD("\x0a\x0a\0\x01", "extensions: cut, or a wrong length");

    GOOD("\0\x10\0\x05\0\x03\x02h2");
    assert_true(hello_alpn_has(&h, STR("h2")));
    BAD("\0\x10\0\x02\0\0", "ALPN: empty or cut");
    BAD("\0\x10\0\x03\0\x01\0", "ALPN: a protocol without a name, or cut");
    BAD("\0\x10\0\x05\0\x03\x03h2", "ALPN: a protocol without a name, or cut");
    BAD("\0\x10\0\x05\0\x03\x01h2", "ALPN: a protocol without a name, or cut");
    BAD("\0\x10\0\x06\0\x03\x02h2x", "extensions: cut, or a wrong length");

    GOOD("\0\x2b\0\x05\x04\x0a\x0a\x03\x04");
    assert_int_equal(h.best, 0x0304);
    GOOD("\0\x2b\0\x05\x04\x03\x02\x03\x01");
    assert_int_equal(h.best, 0x0302);
    BAD("\0\x2b\0\x03\x02\x0a\x0a", "supported versions: none that is known");
    BAD("\0\x2b\0\x05\x04\x03\x04\x03\0", "SSLv3 or older is offered");
    BAD("\0\x2b\0\x04\x03\x03\x04\x03", "supported versions: empty or cut");
    BAD("\0\x2b\0\x01\0", "supported versions: empty or cut");

    GOOD("\0\x23\0\0");
    GOOD("\0\x23\0\x01t");
    GOOD("\0\x2a\0\0\0\x29\0\x01p");
    BAD("\0\x29\0\x01p\0\x2a\0\0", "pre_shared_key is not last");

    GOOD("\xfe\x0d\0\x02\0x");
    assert_true(h.offers_ech);
    GOOD("\xff\xce\0\x01x");
    assert_true(h.offers_ech);
    GOOD("\xfe\x0a\0\x01x");
    assert_true(h.offers_ech);
    BAD("\xfe\x0d\0\x02\x01x", "encrypted hello: not an outer one");
    BAD("\xfe\x0d\0\0", "extensions: cut, or a wrong length");
    BAD("\xfd\0\0\x02\0x", "encrypted hello: the inner one, in the clear");

    AUTO_BUF struct buf b = BUF_INIT(4096);
    for (size_t i = 0; i <= HELLO_EXTENSIONS_MAX; i++) {
        assert_int_equal(with_extensions(buf_str(&b), &h), HELLO_COMPLETE);
        put(&b, 4, (0x4000 + i) << 16);
    }
    assert_int_equal(with_extensions(buf_str(&b), &h), HELLO_BAD);
    assert_string_equal(h.reason, "too many extensions");
}

static void test_body(void **state)
{
    (void)state;
    struct hello h;
    struct parts p = plain;
    assert_int_equal(parse_parts(&p, &h), HELLO_COMPLETE); /* no extensions at all */
    assert_int_equal(h.best, 0x0303);
    for (unsigned version = 0x0200; version < 0x0500; version++) {
        p.version = (uint16_t)version;
        assert_int_equal(parse_parts(&p, &h), version >= 0x0301 && version <= 0x0304 ? HELLO_COMPLETE : HELLO_BAD);
    }
    p = plain;
    p.session = STR("0123456789abcdef0123456789abcdef");
    assert_int_equal(parse_parts(&p, &h), HELLO_COMPLETE);
    p.session = STR("0123456789abcdef0123456789abcdefX");
    assert_int_equal(parse_parts(&p, &h), HELLO_BAD);
    p = plain;
    p.ciphers = STR("");
    assert_int_equal(parse_parts(&p, &h), HELLO_BAD);
    p.ciphers = STR("\x13\x01\x13");
    assert_int_equal(parse_parts(&p, &h), HELLO_BAD);
    p = plain;
    p.compressions = STR("\x01");
    assert_int_equal(parse_parts(&p, &h), HELLO_BAD);
    p.compressions = STR("\x01\0");
    assert_int_equal(parse_parts(&p, &h), HELLO_COMPLETE);
}

/* A lie at every byte: when it is complete still, its name is what stands in the name's place. */
static void test_each_byte_changed(void **state)
{
    (void)state;
    AUTO_BUF struct buf message = BUF_INIT(65536), bytes = BUF_INIT(65536);
    struct parts p = plain;
    p.extensions = STR("\0\0\0\x0a\0\x08\0\0\x05"
                       "a.org\0\x10\0\x05\0\x03\x02h2\0\x2b\0\x03\x02\x03\x04");
    make(&p, &message);
    in_records(buf_str(&message), 16384, &bytes);
    const char *name = memmem(buf_data(&bytes), buf_len(&bytes), "a.org", 5);
    for (size_t i = 0; i < buf_len(&bytes); i++) {
        char *at = buf_data(&bytes) + i, kept = *at;
        for (int value = 0; value < 256; value++) {
            struct hello h;
            *at = (char)value;
            if (parse(buf_str(&bytes), &h) != HELLO_COMPLETE || hello_name(&h).n == 0)
                continue;
            assert_true(str_eq(hello_name(&h), str_n(name, 5)));
        }
        *at = kept;
    }
}

static enum hello_result bytes_are(struct str bytes, const char **ret_reason)
{
    struct hello h;
    enum hello_result r = parse(bytes, &h);
    *ret_reason = h.reason;
    for (size_t n = 0; n < bytes.n; n++) /* what was said early stays so */
        if (parse(str_n(bytes.p, n), &h) != HELLO_NEED_MORE)
            assert_int_equal(h.result, r);
    return r;
}

#define BYTES(literal, result) assert_int_equal(bytes_are(STR(literal), &reason), result)

static void test_first_bytes(void **state)
{
    (void)state;
    const char *reason;
    BYTES("", HELLO_NEED_MORE);
    BYTES("GET / HTTP/1.1\r\n", HELLO_NOT_TLS);
    BYTES("SSH-2.0-x\r\n", HELLO_NOT_TLS);
    BYTES("\x16", HELLO_NEED_MORE);
    BYTES("\x16\x10", HELLO_NOT_TLS);
    BYTES("\x16\x02", HELLO_NEED_MORE);
    BYTES("\x16\x03\x09", HELLO_NEED_MORE);
    BYTES("\x16\x03\x05\0\x05\x01\0", HELLO_BAD); /* servers take these */
    BYTES("\x16\x03\xff\x02\0\x01\0", HELLO_BAD);
    BYTES("\x16\x0f\0\0\x01\x01", HELLO_BAD);
    BYTES("\x16\0\0\0\x01\0\0\0", HELLO_NOT_TLS); /* 22, and then a 1, as somebody else writes them */
    BYTES("\x16\0\0\0\x07\x01\x01\0", HELLO_NOT_TLS);
    BYTES("\x16\0\0\0\0", HELLO_NOT_TLS);
    BYTES("\x16\0\0\x50\0", HELLO_NOT_TLS);
    BYTES("\x16\x03\x01", HELLO_NEED_MORE);
    BYTES("\x13\x03\x01", HELLO_NOT_TLS);
    BYTES("\x14\x03\x01\0\x01\x01", HELLO_BAD);
    BYTES("\x15\x03\x01\0\x02\x02\x28", HELLO_BAD);
    BYTES("\x17\x03\x03\0\x05hello", HELLO_BAD);
    BYTES("\x18\x03\x03\0\x03\x01\xff\xff", HELLO_BAD);
    BYTES("\x1a\x03\x03", HELLO_BAD);
    BYTES("\x1b\x03\x03", HELLO_NOT_TLS);
    BYTES("\x16\x03\x01\0\0", HELLO_BAD);
    BYTES("\x16\x03\x01\x40\x01", HELLO_BAD);
    BYTES("\x16\x03\x01\x40\0", HELLO_NEED_MORE);
    BYTES("\x16\x03\x01\0\x01\x02", HELLO_BAD); /* ServerHello */
    BYTES("\x16\x03\x01\0\x04\x01\0\x48\x01", HELLO_BAD);
    BYTES("\x16\x03\x01\0\x05\x01\0\0\0\0", HELLO_BAD); /* something behind it */
    BYTES("\x16\x03\x01\0\x05\x01\0\0\0", HELLO_BAD);
    BYTES("\x16\x03\x01\0\x02\x01\0\x17\x03\x03\0\x01x", HELLO_BAD);
    assert_string_equal(reason, "another record inside of the hello");
    BYTES("\x16\x03\x01\0\x02\x01\0\x16\x03\x03\0\0", HELLO_BAD);
    BYTES("\x80\x2e\x01\0\x02\0\x15\0\0", HELLO_BAD);
    BYTES("\x80\x2e\x01\x03\x01\0\x15\0\0", HELLO_BAD);
    BYTES("\x80\x2e\x01\x03\x09\0\x15\0\0", HELLO_BAD);
    BYTES("\x80\x2e\x01\x07\x01", HELLO_NOT_TLS);
    BYTES("\x80\x2e\x02", HELLO_NOT_TLS);
    BYTES("\x80\x2e", HELLO_NEED_MORE);
}

static void test_limits(void **state)
{
    (void)state;
    AUTO_BUF struct buf padding = BUF_INIT(1 << 20), message = BUF_INIT(1 << 20), bytes = BUF_INIT(1 << 20);
    struct hello h;
    size_t most = HELLO_MESSAGE_MAX - (2 + 32 + 1 + 2 + 2 + 1 + 1 + 2);
    put(&padding, 4, most - 4);
    memset(buf_reserve(&padding, most), 0, most);
    buf_commit(&padding, most - 4);
    char *kind = buf_data(&padding);
    kind[0] = 0x7f;
    struct parts p = plain;
    p.extensions = buf_str(&padding);
    make(&p, &message);
    in_records(buf_str(&message), 4000, &bytes);
    assert_int_equal(parse(buf_str(&bytes), &h), HELLO_COMPLETE);
    in_records(buf_str(&message), 1, &bytes); /* six bytes for each */
    hello_init(&h);
    for (size_t n = 1; n < HELLO_BYTES_MAX; n++)
        assert_int_equal(hello_feed(&h, str_n(buf_data(&bytes), n)), HELLO_NEED_MORE);
    assert_int_equal(hello_feed(&h, str_n(buf_data(&bytes), HELLO_BYTES_MAX)), HELLO_BAD);
    assert_int_equal(hello_feed(&h, buf_str(&bytes)), HELLO_BAD);

    buf_append_char(&padding, 0);
    kind = buf_data(&padding);
    kind[3]++;
    p.extensions = buf_str(&padding);
    make(&p, &message);
    in_records(buf_str(&message), 4000, &bytes);
    assert_int_equal(parse(buf_str(&bytes), &h), HELLO_BAD);
    assert_string_equal(h.reason, "too long");
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_openssl),
        cmocka_unit_test(test_resumption),
        cmocka_unit_test(test_other_libraries),
        cmocka_unit_test(test_server_names),
        cmocka_unit_test(test_other_extensions),
        cmocka_unit_test(test_body),
        cmocka_unit_test(test_each_byte_changed),
        cmocka_unit_test(test_first_bytes),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

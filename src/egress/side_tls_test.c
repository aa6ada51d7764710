/* SPDX-License-Identifier: Apache-2.0 */
/* TLS sides against each other and against OpenSSL: what is passed, what is refused and with which words, what becomes of ends and of garbage. */
#include "egress/side_tls.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/side_internal.h"
#include "egress/side_tcp.h"
#include "egress/test_tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/tls1.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_MS = 15000 };
#define NAME "api.example.com"

static const struct ca_leaf *leaf_of(struct test_tls *t, const char *name)
{
    struct err err;
    const struct ca_leaf *leaf;
    assert_int_equal(ca_leaf(t->ca, name, &leaf, &err), 0);
    return leaf;
}

/* A client side and a server side, both ours, over loopback TCP. */
struct both {
    struct test_tls tls;
    struct test_owner client, server;
};

static void both_start(struct both *b, const struct ca_leaf *leaf, const char *name, struct str alpn, struct str chosen)
{
    int fds[2];
    test_tcp_pair(fds);
    test_owner_open(&b->client, NULL);
    test_owner_open(&b->server, NULL);
    b->client.side = side_tls_client(side_tcp_accept(&b->tls.rig.loop, fds[0]), b->tls.world, name, alpn, TIMEOUT_MS,
                                     &test_owner_ops, &b->client);
    b->server.side = side_tls_server(side_tcp_accept(&b->tls.rig.loop, fds[1]), b->tls.sandbox, leaf, STR_NULL, chosen,
                                     TIMEOUT_MS, &test_owner_ops, &b->server);
}

static bool both_are_ready(void *ctx)
{
    const struct both *b = ctx;
    if (b->client.is_failed || b->server.is_failed)
        fail_msg("%s", b->client.is_failed ? b->client.err.msg : b->server.err.msg);
    return b->client.is_ready && b->server.is_ready;
}

static void both_open(struct both *b)
{
    test_tls_open(&b->tls);
    both_start(b, leaf_of(&b->tls, NAME), NAME, STR("\x02h2\x08http/1.1"), STR("h2"));
    test_until(&b->tls.rig, both_are_ready, b);
}

static void both_fini(struct both *b)
{
    test_owner_fini(&b->client);
    test_owner_fini(&b->server);
}

static void both_close(struct both *b)
{
    both_fini(b);
    test_tls_close(&b->tls);
}

struct amount {
    struct test_owner *owner;
    size_t n;
};

static bool has_amount(void *ctx)
{
    const struct amount *a = ctx;
    if (a->owner->is_failed)
        fail_msg("%s", a->owner->err.msg);
    return buf_len(&a->owner->got) >= a->n;
}

static void expect(struct test_rig *r, struct test_owner *o, const char *text)
{
    test_until(r, has_amount, &(struct amount){o, strlen(text)});
    assert_true(str_eqc(buf_str(&o->got), text));
}

static void test_both_ways_and_half_close(void **state)
{
    (void)state;
    struct both b;
    char c;
    both_open(&b);
    assert_true(str_eqc(side_tls_alpn(b.client.side), "h2"));
    assert_true(str_eqc(side_tls_alpn(b.server.side), "h2"));
    assert_int_equal(side_fd(b.client.side), -1);
    assert_int_equal(side_write(b.client.side, "question", 8), 8);
    expect(&b.tls.rig, &b.server, "question");
    side_shut(b.client.side);
    test_until_true(&b.tls.rig, &b.server.is_ended);
    assert_int_equal(side_write(b.server.side, "answer", 6), 6);
    expect(&b.tls.rig, &b.client, "answer");
    assert_false(b.client.is_ended);
    side_shut(b.server.side);
    test_until_true(&b.tls.rig, &b.client.is_ended);
    assert_int_equal(side_read(b.client.side, &c, 1), 0);
    assert_int_equal(side_bytes_out(b.client.side), 8);
    assert_int_equal(side_bytes_in(b.client.side), 6);
    test_turn(&b.tls.rig);
    assert_false(b.client.is_failed || b.server.is_failed);
    both_close(&b);
}

static void test_close_is_an_end(void **state)
{
    (void)state;
    struct both b;
    both_open(&b);
    assert_int_equal(side_write(b.server.side, "bye", 3), 3);
    side_close(TAKE_PTR(b.server.side));
    test_until_true(&b.tls.rig, &b.client.is_ended);
    assert_true(str_eqc(buf_str(&b.client.got), "bye"));
    both_close(&b);
    both_open(&b);
    side_reset(TAKE_PTR(b.server.side));
    test_until_true(&b.tls.rig, &b.client.is_failed);
    assert_int_equal(b.client.err.errnum, ECONNRESET);
    assert_false(b.client.is_ended);
    both_close(&b);
}

/* The peer says that it has ended and is gone when we write: that is told, although there is nothing left to read. */
static void test_gone_after_its_end(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    int fds[2];
    test_tls_open(&t);
    for (int is_read_first = 0; is_read_first < 2; is_read_first++) {
        test_tcp_pair(fds);
        test_ssl_open(&peer, &t, fds[1], true, NULL);
        test_owner_open(&o, NULL);
        o.side = side_tls_server(side_tcp_accept(&t.rig.loop, fds[0]), t.sandbox, leaf_of(&t, NAME), STR_NULL, STR_NULL,
                                 TIMEOUT_MS, &test_owner_ops, &o);
        assert_true(test_ssl_handshake(&peer));
        test_until_true(&t.rig, &o.is_ready);
        test_turn(&t.rig);
        o.paused = true;
        assert_int_equal(SSL_shutdown(peer.ssl), 0);
        if (is_read_first) {
            test_turn(&t.rig);
            test_owner_read(&o);
            assert_true(o.is_ended);
        }
        assert_int_equal(
            setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger)), 0);
        (void)close(TAKE_FD(peer.fd));
        for (int i = 0; i < 5; i++) {
            (void)side_write(o.side, "x", 1);
            test_turn(&t.rig);
        }
        if (!is_read_first)
            test_owner_read(&o);
        assert_int_equal(o.is_ended, is_read_first);
        test_until_true(&t.rig, &o.is_failed);
        test_owner_fini(&o);
        test_ssl_fini(&peer);
    }
    test_tls_close(&t);
}

static char pattern(size_t i)
{
    return (char)((i * 2654435761u) >> 13);
}

/* Large amounts, and a reader that stops: the writer is held up, with a bounded amount under way, and what arrives is what was sent, although the
 * writer does not come back with what it tried before. */
static void test_bulk_and_slow_reader(void **state)
{
    (void)state;
    enum { TOTAL = 20 * 1000 * 1000, STEP = 150 * 1000 };
    struct both b;
    both_open(&b);
    AUTO_FREE char *from = mem_alloc(STEP);
    b.client.paused = true;
    size_t sent = 0;
    unsigned stops = 0;
    while (sent < TOTAL) {
        size_t n = MIN((size_t)STEP - (sent % 1000), TOTAL - sent);
        for (size_t i = 0; i < n; i++)
            from[i] = pattern(sent + i);
        b.server.is_writable = false;
        ssize_t took = side_write(b.server.side, from, n);
        assert_true(took > 0 || took == -EAGAIN);
        sent += took > 0 ? (size_t)took : 0;
        if (took == (ssize_t)n)
            continue;
        stops++;
        test_turn(&b.tls.rig);
        if (b.server.is_writable)
            continue;
        assert_int_equal(side_write(b.server.side, from, n), -EAGAIN);
        assert_true(b.client.readable <= stops + 1); /* once it was ready, and once each time */
        test_owner_read(&b.client);
        test_until_true(&b.tls.rig, &b.server.is_writable);
    }
    b.client.paused = false;
    test_owner_read(&b.client);
    test_until(&b.tls.rig, has_amount, &(struct amount){&b.client, TOTAL});
    assert_int_equal(buf_len(&b.client.got), TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        if (buf_data(&b.client.got)[i] != pattern(i))
            fail_msg("byte %zu is another one", i);
    assert_true(stops > 3);
    both_close(&b);
}

/* What waits inside OpenSSL is told to a new owner, although the socket has nothing more. */
static void test_new_owner(void **state)
{
    (void)state;
    struct both b;
    char c;
    both_open(&b);
    test_turn(&b.tls.rig);
    b.client.paused = true;
    b.client.readable = 0;
    assert_int_equal(side_write(b.server.side, "abcdef", 6), 6);
    test_turn(&b.tls.rig);
    assert_int_equal(b.client.readable, 1);
    assert_int_equal(side_read(b.client.side, &c, 1), 1);
    struct test_owner second;
    test_owner_open(&second, TAKE_PTR(b.client.side));
    expect(&b.tls.rig, &second, "bcdef");
    side_shut(b.server.side);
    test_until_true(&b.tls.rig, &second.is_ended);
    struct test_owner third; /* and of an end that was read already */
    test_owner_open(&third, TAKE_PTR(second.side));
    test_until_true(&b.tls.rig, &third.is_ended);
    test_owner_fini(&second);
    test_owner_fini(&third);
    both_close(&b);
}

/* A TCP end without close_notify is no end. */
static void test_truncation(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    test_tls_open(&t);
    for (int i = 0; i < 2; i++) {
        int fds[2];
        test_tcp_pair(fds);
        test_ssl_open(&peer, &t, fds[1], i == 0, i ? leaf_of(&t, NAME) : NULL);
        test_owner_open(&o, NULL);
        struct side *tcp = side_tcp_accept(&t.rig.loop, fds[0]);
        if (i)
            o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        else
            o.side =
                side_tls_server(tcp, t.sandbox, leaf_of(&t, NAME), STR_NULL, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        assert_true(test_ssl_handshake(&peer));
        test_until_true(&t.rig, &o.is_ready);
        test_ssl_send(&peer, "half of it", 10);
        assert_int_equal(shutdown(fds[1], SHUT_WR), 0);
        test_until_true(&t.rig, &o.is_failed);
        assert_true(str_eqc(buf_str(&o.got), "half of it"));
        assert_false(o.is_ended);
        assert_int_equal(o.read_error, ECONNABORTED);
        assert_int_equal(o.err.errnum, ECONNABORTED);
        test_owner_fini(&o);
        test_ssl_fini(&peer);
    }
    test_tls_close(&t);
}

static void test_ends_during_handshake(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    char hello[4096];
    test_tls_open(&t);
    for (int i = 0; i < 4; i++) {
        int fds[2];
        test_tcp_pair(fds);
        test_owner_open(&o, NULL);
        struct side *tcp = side_tcp_accept(&t.rig.loop, fds[0]);
        if (i % 2)
            o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        else
            o.side =
                side_tls_server(tcp, t.sandbox, leaf_of(&t, NAME), STR_NULL, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        if (i % 2)
            assert_true(test_peer_wait(&t.rig, fds[1], hello, sizeof(hello)) > 0);
        if (i >= 2) /* a close_notify instead of a hello */
            test_peer_send(fds[1], "\x15\x03\x03\x00\x02\x01\x00", 7);
        (void)shutdown(fds[1], SHUT_WR);
        test_until_true(&t.rig, &o.is_failed);
        assert_true(str_starts(str_of(o.err.msg), STR("TLS handshake: ")));
        assert_false(o.is_ready);
        test_owner_fini(&o);
        (void)close(fds[1]);
    }
    test_tls_close(&t);
}

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } garbage[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", 28},
        {"\x16\x03\x01\xff\xff\x01\x00\x00\x00", 9},
        {"\x16\x03\x03\x00\x04\x01\x00\x00\x01x", 9},
        {"\x17\x03\x03\x00\x05hello", 10},
        {"\x14\x03\x03\x00\x01\x01\x14\x03\x03\x00\x01\x01", 12},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 36},
        {"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x00\x00\x35\x00\x00\x2f", 17},
    };
    struct test_tls t;
    struct test_owner o;
    test_tls_open(&t);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(garbage); i++) {
        int fds[2];
        struct str bytes = str_n(garbage[i / 2].bytes, garbage[i / 2].n);
        test_tcp_pair(fds);
        test_owner_open(&o, NULL);
        struct side *tcp = side_tcp_accept(&t.rig.loop, fds[0]);
        if (i % 2) {
            o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
            test_peer_send(fds[1], bytes.p, bytes.n);
        } else { /* half of it was read before */
            o.side = side_tls_server(tcp, t.sandbox, leaf_of(&t, NAME), str_n(bytes.p, bytes.n / 2), STR_NULL,
                                     TIMEOUT_MS, &test_owner_ops, &o);
            test_peer_send(fds[1], bytes.p + bytes.n / 2, bytes.n - bytes.n / 2);
        }
        test_turn(&t.rig);
        (void)shutdown(fds[1], SHUT_WR); /* for what could be the beginning of something */
        test_until_true(&t.rig, &o.is_failed);
        assert_true(str_starts(str_of(o.err.msg), STR("TLS handshake: ")));
        assert_true(side_read(o.side, &(char){0}, 1) < 0);
        test_owner_fini(&o);
        (void)close(fds[1]);
    }
    test_tls_close(&t);
}

/* The ClientHello in any two pieces, the first of them read before there was a TLS side; and byte by byte. */
static void test_split_hello(void **state)
{
    (void)state;
    struct test_tls t;
    test_tls_open(&t);
    size_t size = 0;
    for (size_t at = 0; at == 0 || at <= size; at += at < 12 || at + 12 > size ? 1 : 37) {
        struct test_ssl peer;
        struct test_owner o;
        char hello[4096];
        int fds[2], between[2];
        test_tcp_pair(fds);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, between), 0);
        test_ssl_open(&peer, &t, between[0], true, NULL);
        assert_int_equal(SSL_set_tlsext_host_name(peer.ssl, NAME "."), 1);
        assert_int_equal(SSL_do_handshake(peer.ssl), -1);
        size = (size_t)recv(between[1], hello, sizeof(hello), 0);
        assert_in_range(size, 100, sizeof(hello));
        assert_int_equal(dup3(fds[1], between[0], O_CLOEXEC), between[0]); /* from here on it talks to the side */
        test_owner_open(&o, NULL);
        o.side = side_tls_server(side_tcp_accept(&t.rig.loop, fds[0]), t.sandbox, leaf_of(&t, NAME), str_n(hello, at),
                                 STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
        for (size_t i = at; i < size; i += at == 0 ? 1 : size) {
            test_peer_send(fds[1], hello + i, at == 0 ? 1 : size - i);
            test_turn(&t.rig);
        }
        assert_true(test_ssl_handshake(&peer));
        test_until_true(&t.rig, &o.is_ready);
        test_ssl_send(&peer, "x", 1);
        expect(&t.rig, &o, "x");
        test_owner_fini(&o);
        test_ssl_fini(&peer);
        (void)close(fds[1]);
        (void)close(between[1]);
    }
    test_tls_close(&t);
}

static void expect_refusal(struct both *b, const struct ca_leaf *leaf, const char *name, const char *text,
                           enum side_tls_alert alert)
{
    char message[256];
    both_start(b, leaf, name, STR_NULL, STR_NULL);
    test_until_true(&b->tls.rig, &b->client.is_failed);
    (void)snprintf(message, sizeof(message), "upstream certificate: %s", text);
    assert_string_equal(b->client.err.msg, message);
    assert_int_equal(b->client.err.code, ERR_UNAUTHENTICATED);
    assert_int_equal(side_tls_failure_alert(b->client.side), alert);
    assert_false(b->client.is_ready);
    assert_int_equal(side_write(b->client.side, "secret", 6), -EPROTO);
    assert_int_equal(side_bytes_out(b->client.side), 0);
    test_until_true(&b->tls.rig, &b->server.is_failed); /* it was told by an alert */
    assert_non_null(strstr(b->server.err.msg, "the peer sent alert"));
    both_fini(b);
}

static void test_bad_certificates(void **state)
{
    (void)state;
    struct both b;
    struct err err;
    struct ca *stranger;
    const struct ca_leaf *theirs;
    enum { HOUR = 3600, DAY = 24 * HOUR };
    test_tls_open(&b.tls);
    const struct {
        bool by_itself;
        const char *alternative;
        long from, to;
        const char *text;
        enum side_tls_alert alert;
    } bad[] = {
        {true, "DNS:" NAME, -HOUR, HOUR, "self-signed", TLS_ALERT_UNKNOWN_CA},
        {false, "DNS:other.example,DNS:*.b.example", -HOUR, HOUR, "name mismatch: it is for other.example, *.b.example",
         TLS_ALERT_BAD_CERTIFICATE},
        {false, "DNS:a,DNS:b,DNS:c,DNS:d,DNS:e", -HOUR, HOUR, "name mismatch: it is for a, b, c, ...",
         TLS_ALERT_BAD_CERTIFICATE},
        {false, "DNS:api.example.co", -HOUR, HOUR, "name mismatch: it is for api.example.co",
         TLS_ALERT_BAD_CERTIFICATE},
        {false, "DNS:a*.example.com", -HOUR, HOUR, "name mismatch: it is for a*.example.com",
         TLS_ALERT_BAD_CERTIFICATE},
        {false, "DNS:*.com", -HOUR, HOUR, "name mismatch: it is for *.com", TLS_ALERT_BAD_CERTIFICATE},
        {false, NULL, -HOUR, HOUR, "name mismatch: it is for no name at all", TLS_ALERT_BAD_CERTIFICATE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        X509 *cert = test_certificate(&b.tls, bad[i].by_itself, bad[i].alternative, bad[i].from, bad[i].to);
        struct ca_leaf leaf = {.name = NAME, .certificate = cert, .key = b.tls.key};
        expect_refusal(&b, &leaf, NAME, bad[i].text, bad[i].alert);
        X509_free(cert);
    }
    char text[64];
    X509 *cert = test_certificate(&b.tls, false, "DNS:" NAME, -30L * DAY, -10L * DAY);
    time_t at = time(NULL) - 10L * DAY;
    struct tm tm;
    (void)gmtime_r(&at, &tm);
    (void)strftime(text, sizeof(text), "expired on %Y-%m-%d", &tm);
    struct ca_leaf leaf = {.name = NAME, .certificate = cert, .key = b.tls.key};
    expect_refusal(&b, &leaf, NAME, text, TLS_ALERT_CERTIFICATE_EXPIRED);
    X509_free(cert);
    cert = leaf.certificate = test_certificate(&b.tls, false, "DNS:" NAME, 10L * DAY, 30L * DAY);
    at = time(NULL) + 10L * DAY;
    (void)gmtime_r(&at, &tm);
    (void)strftime(text, sizeof(text), "not valid before %Y-%m-%d", &tm);
    expect_refusal(&b, &leaf, NAME, text, TLS_ALERT_CERTIFICATE_EXPIRED);
    X509_free(cert);

    assert_int_equal(ca_new("stranger", &stranger, &err), 0);
    assert_int_equal(ca_leaf(stranger, NAME, &theirs, &err), 0);
    expect_refusal(&b, theirs, NAME, "issued by an unknown authority: Cove sandbox stranger", TLS_ALERT_UNKNOWN_CA);
    ca_free(stranger);

    /* And good ones: a name, the name below a wildcard. */
    const char *const good[] = {"DNS:" NAME, "DNS:x.example,DNS:*.example.com"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        leaf.certificate = cert = test_certificate(&b.tls, false, good[i], -HOUR, HOUR);
        both_start(&b, &leaf, NAME, STR_NULL, STR_NULL);
        test_until(&b.tls.rig, both_are_ready, &b);
        both_fini(&b);
        X509_free(cert);
    }
    test_tls_close(&b.tls);
}

/* What the certificate says of its issuer is shown, without what would do something to a terminal. */
static void test_hostile_certificate_text(void **state)
{
    (void)state;
    struct both b;
    test_tls_open(&b.tls);
    X509 *cert = test_certificate(&b.tls, true, "DNS:" NAME, -3600, 3600);
    assert_int_equal(X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "O", MBSTRING_ASC,
                                                (const unsigned char *)"other", -1, -1, 0),
                     1); /* so that it is not its own issuer any more */
    assert_true(X509_sign(cert, b.tls.key, EVP_sha256()) > 0);
    struct ca_leaf leaf = {.name = NAME, .certificate = cert, .key = b.tls.key};
    expect_refusal(&b, &leaf, NAME, "issued by an unknown authority: a?[2Jb", TLS_ALERT_UNKNOWN_CA);
    X509_free(cert);
    test_tls_close(&b.tls);
}

/* A raw client of our server side; ret_peer is handshaken or failed. */
static bool raw_client(struct test_tls *t, struct test_owner *o, struct test_ssl *peer, const char *name, int version,
                       const char *alpn, const char *chosen)
{
    int fds[2];
    test_tcp_pair(fds);
    test_ssl_open(peer, t, fds[1], true, NULL);
    if (name)
        assert_int_equal(SSL_set_tlsext_host_name(peer->ssl, name), 1);
    if (version) {
        SSL_set_security_level(peer->ssl, 0);
        assert_int_equal(SSL_set_min_proto_version(peer->ssl, version), 1);
        assert_int_equal(SSL_set_max_proto_version(peer->ssl, version), 1);
    }
    if (alpn)
        assert_int_equal(SSL_set_alpn_protos(peer->ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn)), 0);
    test_owner_open(o, NULL);
    o->side = side_tls_server(side_tcp_accept(&t->rig.loop, fds[0]), t->sandbox, leaf_of(t, NAME), STR_NULL,
                              str_of(chosen), TIMEOUT_MS, &test_owner_ops, o);
    return test_ssl_handshake(peer);
}

static void test_server_name_version_alpn(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int version;
        const char *alpn, *chosen;
        int alert; /* 0: it works */
    } cases[] = {
        {NAME, 0, NULL, "", 0},
        {"API.Example.com", TLS1_2_VERSION, "\x02h2", "h2", 0},
        {NAME, TLS1_3_VERSION, "\x08http/1.1\x02h2", "h2", 0},
        {NAME, TLS1_3_VERSION, "\x08http/1.1\x02h2", "", 0},
        {"other.example.com", 0, NULL, "", TLS_ALERT_UNRECOGNIZED_NAME},
        {NAME ".evil.example", TLS1_2_VERSION, NULL, "", TLS_ALERT_UNRECOGNIZED_NAME},
        {NAME, TLS1_1_VERSION, NULL, "", TLS_ALERT_PROTOCOL_VERSION},
        {NAME, 0, "\x08http/1.1", "h2", SSL_AD_NO_APPLICATION_PROTOCOL},
    };
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    test_tls_open(&t);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool works = raw_client(&t, &o, &peer, cases[i].name, cases[i].version, cases[i].alpn, cases[i].chosen);
        assert_int_equal(works, cases[i].alert == 0);
        if (works) {
            const unsigned char *p;
            unsigned n;
            test_until_true(&t.rig, &o.is_ready);
            SSL_get0_alpn_selected(peer.ssl, &p, &n);
            assert_true(str_eqc(str_n(p, n), cases[i].chosen));
            assert_true(str_eqc(side_tls_alpn(o.side), cases[i].chosen));
            test_ssl_send(&peer, "ping", 4);
            expect(&t.rig, &o, "ping");
            assert_int_equal(side_write(o.side, "pong", 4), 4);
            test_ssl_expect(&peer, STR("pong"));
        } else if (cases[i].version != TLS1_1_VERSION) { /* of which the client itself says that it can't */
            test_until_true(&t.rig, &o.is_failed);
            assert_int_equal(ERR_GET_REASON(peer.error), SSL_AD_REASON_OFFSET + cases[i].alert);
        }
        test_owner_fini(&o);
        test_ssl_fini(&peer);
    }
    test_tls_close(&t);
}

static void test_no_renegotiation(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    char c;
    test_tls_open(&t);
    assert_true(raw_client(&t, &o, &peer, NAME, TLS1_2_VERSION, NULL, ""));
    test_until_true(&t.rig, &o.is_ready);
    assert_int_equal(SSL_renegotiate(peer.ssl), 1);
    (void)SSL_do_handshake(peer.ssl); /* sends a second ClientHello */
    assert_true(test_ssl_receive(&peer, &c, 1) < 0 || SSL_renegotiate_pending(peer.ssl));
    assert_int_equal(ERR_GET_REASON(peer.error), SSL_R_NO_RENEGOTIATION);
    test_owner_fini(&o);
    test_ssl_fini(&peer);

    /* An upstream that asks for it goes on without. */
    int fds[2];
    test_tcp_pair(fds);
    test_ssl_open(&peer, &t, fds[1], false, leaf_of(&t, NAME));
    assert_int_equal(SSL_set_max_proto_version(peer.ssl, TLS1_2_VERSION), 1);
    test_owner_open(&o, NULL);
    o.side =
        side_tls_client(side_tcp_accept(&t.rig.loop, fds[0]), t.world, NAME, STR_NULL, TIMEOUT_MS, &test_owner_ops, &o);
    assert_true(test_ssl_handshake(&peer));
    test_until_true(&t.rig, &o.is_ready);
    assert_int_equal(SSL_renegotiate(peer.ssl), 1);
    (void)SSL_do_handshake(peer.ssl);
    test_turn(&t.rig);
    assert_int_equal(SSL_num_renegotiations(peer.ssl), 1); /* asked for */
    assert_true(test_ssl_receive(&peer, &c, 1) < 0);       /* and refused */
    test_owner_fini(&o);
    test_ssl_fini(&peer);
    test_tls_close(&t);
}

/* No ticket, no session to come back with, no early data. */
static void test_no_resumption(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    test_tls_open(&t);
    for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
        assert_true(raw_client(&t, &o, &peer, NAME, versions[i], NULL, ""));
        test_until_true(&t.rig, &o.is_ready);
        assert_int_equal(side_write(o.side, "x", 1), 1);
        test_ssl_expect(&peer, STR("x"));
        SSL_SESSION *session = SSL_get1_session(peer.ssl);
        assert_false(SSL_SESSION_has_ticket(session));
        assert_int_equal(SSL_SESSION_get_max_early_data(session), 0);
        assert_false(SSL_SESSION_is_resumable(session));
        SSL_SESSION_free(session);
        test_owner_fini(&o);
        test_ssl_fini(&peer);
    }
    test_tls_close(&t);
}

/* A peer can ask for new keys as often as it likes: what we would have to answer is bounded. */
static void test_key_updates(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct test_ssl peer;
    test_tls_open(&t);
    assert_true(raw_client(&t, &o, &peer, NAME, TLS1_3_VERSION, NULL, ""));
    test_until_true(&t.rig, &o.is_ready);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(SSL_key_update(peer.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(peer.ssl), 1);
    }
    test_ssl_send(&peer, "still", 5);
    expect(&t.rig, &o, "still");
    assert_int_equal(side_write(o.side, "here", 4), 4);
    test_ssl_expect(&peer, STR("here"));
    test_owner_fini(&o);
    test_ssl_fini(&peer);
    test_tls_close(&t);
}

static void test_time_limit_and_connect(void **state)
{
    (void)state;
    struct test_tls t;
    struct test_owner o;
    struct sockaddr_storage addr;
    test_tls_open(&t);
    int listener = test_listen(8, &addr); /* answers no hello */
    test_owner_open(&o, NULL);
    struct side *tcp = side_tcp_connect(&t.rig.loop, (struct sockaddr *)&addr, 5000, NULL, NULL);
    o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, 60, &test_owner_ops, &o);
    assert_int_equal(side_write(o.side, "early", 5), -EAGAIN);
    assert_int_equal(side_read(o.side, &(char){0}, 1), -EAGAIN);
    test_until_true(&t.rig, &o.is_failed);
    assert_string_equal(o.err.msg, "TLS handshake: not done within 60 ms");
    assert_int_equal(o.err.code, ERR_DEADLINE_EXCEEDED);
    test_owner_fini(&o);

    (void)close(listener);
    test_owner_open(&o, NULL);
    tcp = side_tcp_connect(&t.rig.loop, (struct sockaddr *)&addr, 5000, NULL, NULL);
    o.side = side_tls_client(tcp, t.world, NAME, STR_NULL, 60, &test_owner_ops, &o);
    test_until_true(&t.rig, &o.is_failed);
    assert_true(str_starts(str_of(o.err.msg), STR("connect to 127.0.0.1:")));
    assert_int_equal(o.err.errnum, ECONNREFUSED);
    test_owner_fini(&o);

    /* A name that can't be one is refused before anything is sent. */
    int fds[2];
    test_tcp_pair(fds);
    test_owner_open(&o, NULL);
    o.side = side_tls_client(side_tcp_accept(&t.rig.loop, fds[0]), t.world, "", STR_NULL, 60, &test_owner_ops, &o);
    test_until_true(&t.rig, &o.is_failed);
    test_owner_fini(&o);
    assert_int_equal(test_peer_wait(&t.rig, fds[1], &(char){0}, 1), 0);
    (void)close(fds[1]);
    test_tls_close(&t);
}

/* A refusal in the clear reaches a client that has sent its hello and waits. */
static void test_alert_before_tls(void **state)
{
    (void)state;
    static const enum side_tls_alert alerts[] = {TLS_ALERT_ACCESS_DENIED, TLS_ALERT_UNRECOGNIZED_NAME};
    struct test_tls t;
    char hello[4096];
    test_tls_open(&t);
    for (size_t i = 0; i < ARRAY_SIZE(alerts); i++) {
        struct test_owner o;
        struct test_ssl peer;
        int fds[2];
        test_tcp_pair(fds);
        test_ssl_open(&peer, &t, fds[1], true, NULL);
        assert_int_equal(SSL_do_handshake(peer.ssl), -1);
        test_owner_open(&o, side_tcp_accept(&t.rig.loop, fds[0]));
        o.paused = true;
        test_turn(&t.rig);
        assert_true(side_read(o.side, hello, sizeof(hello)) > 0);
        side_tls_alert(o.side, alerts[i]);
        side_linger(TAKE_PTR(o.side));
        assert_false(test_ssl_handshake(&peer));
        assert_int_equal(ERR_GET_REASON(peer.error), SSL_AD_REASON_OFFSET + (int)alerts[i]);
        test_owner_fini(&o);
        test_ssl_fini(&peer);
        test_turn(&t.rig);
    }
    test_tls_close(&t);
}

/* Last words of more than the socket takes arrive whole, with their end. */
static void test_linger(void **state)
{
    (void)state;
    static void (*const ways[])(struct side *) = {side_linger, side_close};
    AUTO_FREE char *much = mem_zalloc(8u * 1024 * 1024);
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        struct both b;
        both_open(&b);
        b.client.paused = true;
        ssize_t took = side_write(b.server.side, much, 8u * 1024 * 1024);
        assert_in_range(took, 1, 8u * 1024 * 1024 - 1);
        ways[i](TAKE_PTR(b.server.side));
        test_turn(&b.tls.rig);
        b.client.paused = false;
        test_owner_read(&b.client);
        test_until_true(&b.tls.rig, &b.client.is_ended);
        assert_int_equal(buf_len(&b.client.got), took);
        test_owner_fini(&b.client);
        test_until_alone(&b.tls.rig);
        both_close(&b);
    }
}

static bool is_closed(void *ctx)
{
    return ((struct test_owner *)ctx)->side == NULL;
}

static void test_close_in_callbacks(void **state)
{
    (void)state;
    struct both b;
    test_tls_open(&b.tls);
    for (int i = 0; i < 2; i++) { /* on_ready; on_failed */
        both_start(&b, leaf_of(&b.tls, NAME), i ? "other.example" : NAME, STR_NULL, STR_NULL);
        b.client.close_when_told = b.server.close_when_told = true;
        test_until(&b.tls.rig, is_closed, &b.client);
        test_until(&b.tls.rig, is_closed, &b.server);
        both_fini(&b);
    }
    both_start(&b, leaf_of(&b.tls, NAME), NAME, STR_NULL, STR_NULL); /* at once, and half-way */
    side_close(TAKE_PTR(b.client.side));
    test_turn(&b.tls.rig);
    both_fini(&b);
    both_start(&b, leaf_of(&b.tls, NAME), NAME, STR_NULL, STR_NULL); /* on_readable */
    test_until(&b.tls.rig, both_are_ready, &b);
    b.client.close_when_told = true;
    assert_int_equal(side_write(b.server.side, "x", 1), 1);
    test_until(&b.tls.rig, is_closed, &b.client);
    both_fini(&b);
    test_tls_close(&b.tls);
}

/* What an open connection costs: TLS on both of its ends, after data went both ways. */
static void test_memory(void **state)
{
    (void)state;
    enum { N = 100, EACH = 64 * 1024 };
    struct test_tls t;
    static struct both each[N];
    test_tls_open(&t);
    size_t before = 0;
    for (size_t i = 0; i < N + 1; i++) {
        struct both *b = &each[i ? i - 1 : 0];
        b->tls = t;
        b->tls.rig.guard = t.rig.guard;
        int fds[2];
        test_tcp_pair(fds);
        test_owner_open(&b->client, NULL);
        test_owner_open(&b->server, NULL);
        b->client.side = side_tls_client(side_tcp_accept(&t.rig.loop, fds[0]), t.world, NAME, STR_NULL, TIMEOUT_MS,
                                         &test_owner_ops, &b->client);
        b->server.side = side_tls_server(side_tcp_accept(&t.rig.loop, fds[1]), t.sandbox, leaf_of(&t, NAME), STR_NULL,
                                         STR_NULL, TIMEOUT_MS, &test_owner_ops, &b->server);
        test_until(&t.rig, both_are_ready, b);
        assert_int_equal(side_write(b->client.side, "ping", 4), 4);
        expect(&t.rig, &b->server, "ping");
        assert_int_equal(side_write(b->server.side, "pong", 4), 4);
        expect(&t.rig, &b->client, "pong");
        buf_fini(&b->client.got);
        buf_fini(&b->server.got);
        if (i == 0) { /* what the first one alone makes OpenSSL allocate */
            both_fini(b);
            test_turn(&t.rig);
            before = test_heap_bytes();
        }
    }
    size_t cost = (test_heap_bytes() - before) / N;
    print_message("a connection with TLS on both sides: %zu bytes\n", cost);
    assert_in_range(cost, 1, EACH);
    for (size_t i = 0; i < N; i++)
        both_fini(&each[i]);
    test_tls_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_and_half_close),
        cmocka_unit_test(test_close_is_an_end),
        cmocka_unit_test(test_gone_after_its_end),
        cmocka_unit_test(test_bulk_and_slow_reader),
        cmocka_unit_test(test_new_owner),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_ends_during_handshake),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_split_hello),
        cmocka_unit_test(test_bad_certificates),
        cmocka_unit_test(test_hostile_certificate_text),
        cmocka_unit_test(test_server_name_version_alpn),
        cmocka_unit_test(test_no_renegotiation),
        cmocka_unit_test(test_no_resumption),
        cmocka_unit_test(test_key_updates),
        cmocka_unit_test(test_time_limit_and_connect),
        cmocka_unit_test(test_alert_before_tls),
        cmocka_unit_test(test_linger),
        cmocka_unit_test(test_close_in_callbacks),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

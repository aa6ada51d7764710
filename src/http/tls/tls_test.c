/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server with TLS against OpenSSL's client, whose bytes pass through memory, so that a test decides in which pieces
 * they travel.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "http/test_server.h"
#include "http/tls/tls.h"
#include "http/tls/tls_cert.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_S = 20, PIECE = 16 * 1024 };

#define HELLO "GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"

static struct buf chain, key;
static struct http_tls *tls;

static int set_up(void **state)
{
    AUTO_BUF struct buf ca = BUF_INIT(16 * 1024), ca_key = BUF_INIT(16 * 1024);
    (void)state;
    buf_init(&chain, 16 * 1024);
    buf_init(&key, 16 * 1024);
    assert_int_equal(tls_ca_make("box.test", &ca, &ca_key), 0);
    assert_int_equal(tls_cert_issue(buf_str(&ca), buf_str(&ca_key), "box.test", &chain, &key), 0);
    assert_int_equal(http_tls_new(buf_str(&chain), buf_str(&key), &tls), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    http_tls_free(tls);
    buf_fini(&chain);
    buf_fini(&key);
    return 0;
}

/* ---- the client ---- */

struct client {
    struct test_server *t;
    SSL_CTX *ctx; /* NULL: somebody else's */
    SSL *ssl;
    BIO *from, *to; /* ssl's */
    int fd;
    size_t step; /* how many bytes travel at a time; 0: any */
    bool eof, reset;
    int why, reason; /* what OpenSSL said last: SSL_get_error(), and the reason of an error */
};

static void flush(struct client *c)
{
    char piece[PIECE];
    int n;
    while ((n = BIO_read(c->to, piece, (int)(c->step ? MIN(c->step, sizeof(piece)) : sizeof(piece)))) > 0)
        test_send(c->t, c->fd, str_n(piece, (size_t)n));
}

/* Turns the loop and takes what came. False: nothing did. */
static bool receive(struct client *c)
{
    char piece[PIECE];
    uv_run(&c->t->loop, UV_RUN_NOWAIT);
    ssize_t n = recv(c->fd, piece, sizeof(piece), MSG_DONTWAIT);
    c->eof |= n == 0;
    c->reset |= n < 0 && errno == ECONNRESET;
    if (n <= 0)
        return false;
    assert_int_equal(BIO_write(c->from, piece, (int)n), n);
    return true;
}

/* 1 done, 0 goes on, -1 the connection ended or OpenSSL objects. */
static int progress(struct client *c, int r)
{
    c->why = SSL_get_error(c->ssl, r); /* before the server, which shares this thread, has errors of its own */
    c->reason = ERR_GET_REASON(ERR_peek_error());
    flush(c);
    if (r > 0)
        return 1;
    if (c->why != SSL_ERROR_WANT_READ)
        return -1;
    return receive(c) || (!c->eof && !c->reset) ? 0 : -1;
}

static int shake(struct client *c)
{
    usec_t end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
    for (int r = 0; clock_mono() < end;) {
        ERR_clear_error();
        r = progress(c, SSL_do_handshake(c->ssl));
        if (r)
            return r;
    }
    fail_msg("the handshake takes for ever");
    return -1;
}

static SSL_CTX *context(int version)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(ctx);
    SSL_CTX_set_security_level(ctx, 0);
    assert_int_equal(SSL_CTX_set_min_proto_version(ctx, version), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(ctx, version), 1);
    return ctx;
}

static void prepare(struct client *c, struct test_server *t, SSL_CTX *ctx, const char *alpn)
{
    *c = (struct client){.t = t, .fd = test_connect(t)};
    c->ssl = SSL_new(ctx);
    assert_non_null(c->ssl);
    c->from = BIO_new(BIO_s_mem());
    c->to = BIO_new(BIO_s_mem());
    (void)BIO_set_mem_eof_return(c->from, -1);
    SSL_set_bio(c->ssl, c->from, c->to);
    SSL_set_connect_state(c->ssl);
    if (alpn)
        assert_int_equal(SSL_set_alpn_protos(c->ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn)), 0);
}

static void dial(struct client *c, struct test_server *t, int version)
{
    SSL_CTX *ctx = context(version);
    prepare(c, t, ctx, "\x08http/1.1");
    c->ctx = ctx;
    assert_int_equal(shake(c), 1);
}

static void hang_up(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    (void)fd_close(c->fd);
    test_turn(c->t);
}

static void send_text(struct client *c, struct str text)
{
    while (text.n) {
        int n = SSL_write(c->ssl, text.p, (int)MIN(text.n, 64 * 1024));
        assert_true(n > 0);
        text = str_sub(text, (size_t)n);
        flush(c);
    }
}

/* Until `until` was received (p NULL: the end); returns whether the end was a TLS end. */
static bool receive_text(struct client *c, struct buf *b, struct str until)
{
    usec_t end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
    char piece[PIECE];
    while (!until.p || buf_len(b) < until.n ||
           !memmem(buf_data(b) + buf_len(b) - MIN(buf_len(b), sizeof(piece) + until.n),
                   MIN(buf_len(b), sizeof(piece) + until.n), until.p, until.n)) {
        ERR_clear_error();
        int n = SSL_read(c->ssl, piece, sizeof(piece));
        if (n > 0) {
            assert_int_equal(buf_append(b, piece, (size_t)n), 0);
            end = clock_mono() + PATIENCE_S * USEC_PER_SEC;
        } else if (progress(c, n) < 0) {
            if (until.p)
                fail_msg("ended before \"%.*s\", after \"%.*s\"", STR_ARG(until), STR_ARG(buf_str(b)));
            return c->why == SSL_ERROR_ZERO_RETURN;
        }
        assert_true(clock_mono() < end);
    }
    return false;
}

static void expect(struct client *c, const char *what)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    (void)receive_text(c, &b, str_of(what));
}

/* The server still serves. */
static void still_works(struct test_server *t)
{
    struct client c;
    dial(&c, t, TLS1_3_VERSION);
    send_text(&c, STR(HELLO));
    expect(&c, "hello GET");
    hang_up(&c);
}

/* ---- what works ---- */

static void requests_are_answered(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct client c;
        dial(&c, &t, version);
        assert_int_equal(SSL_version(c.ssl), version);
        const unsigned char *name;
        unsigned n;
        SSL_get0_alpn_selected(c.ssl, &name, &n);
        assert_int_equal(n, 8);
        assert_memory_equal(name, "http/1.1", 8);
        for (int i = 0; i < 3; i++) {
            send_text(&c, STR(HELLO));
            expect(&c, "hello GET");
        }
        send_text(&c, STR("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"));
        expect(&c, "\r\n\r\nbody");
        hang_up(&c);
    }
    test_server_close(&t);
}

static void bytes_may_come_one_by_one(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        SSL_CTX *ctx = context(version);
        struct client c;
        prepare(&c, &t, ctx, NULL);
        c.step = 1;
        assert_int_equal(shake(&c), 1);
        send_text(&c, STR(HELLO "POST /count HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n12345"));
        expect(&c, "\r\n\r\n5");
        hang_up(&c);
        SSL_CTX_free(ctx);
    }
    test_server_close(&t);
}

static void requests_may_be_pipelined(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    dial(&c, &t, TLS1_3_VERSION);
    AUTO_BUF struct buf many = BUF_INIT(1 << 20), got = BUF_INIT(1 << 20);
    for (int i = 0; i < 100; i++)
        (void)buf_append_cstr(&many, HELLO);
    (void)buf_append_cstr(&many, "GET /big?n=3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    send_text(&c, buf_str(&many));
    assert_true(receive_text(&c, &got, STR_NULL)); /* the end is one of TLS, too */
    assert_int_equal(t.requests, 101);
    size_t found = 0;
    for (const char *p = buf_data(&got), *end = p + buf_len(&got); (p = memmem(p, (size_t)(end - p), "hello GET", 9));
         p += 9)
        found++;
    assert_int_equal(found, 100);
    hang_up(&c);
    test_server_close(&t);
}

static void large_bodies_go_both_ways(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    enum { BYTES = 3 << 20 };
    AUTO_BUF struct buf body = BUF_INIT(BYTES);
    while (buf_len(&body) < BYTES)
        (void)buf_append(&body, "0123456789abcdef", 16);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct client c;
        AUTO_BUF struct buf got = BUF_INIT(2 * BYTES);
        dial(&c, &t, version);
        send_text(&c, STR("POST /count HTTP/1.1\r\nhost: x\r\ncontent-length: 3145728\r\n\r\n"));
        send_text(&c, buf_str(&body));
        expect(&c, "\r\n\r\n3145728");
        send_text(&c, STR("GET /big?n=3145728 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
        assert_true(receive_text(&c, &got, STR_NULL));
        assert_true(buf_len(&got) > BYTES && buf_len(&got) < BYTES + 300);
        hang_up(&c);
    }
    test_server_close(&t);
}

/* The server writes more than the socket takes, is asked to go on, and the bytes are still the right ones. */
static void a_slow_reader_gets_all_of_it(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    AUTO_BUF struct buf got = BUF_INIT(64 << 20);
    dial(&c, &t, TLS1_3_VERSION);
    send_text(&c, STR("GET /chunked?n=20000000 HTTP/1.1\r\nhost: x\r\n\r\n"));
    for (int i = 0; i < 50; i++)
        test_turn(&t); /* nobody reads */
    (void)receive_text(&c, &got, STR("\r\n0\r\n\r\n"));
    assert_true(buf_len(&got) > 20000000 && buf_len(&got) < 20000000 + 64 * 1024);
    send_text(&c, STR(HELLO));
    expect(&c, "hello GET");
    hang_up(&c);
    test_server_close(&t);
}

static void an_upgraded_connection_is_raw(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    AUTO_BUF struct buf got = BUF_INIT(1 << 20);
    dial(&c, &t, TLS1_3_VERSION);
    send_text(&c, STR("GET /up HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\nearly"));
    expect(&c, "early");
    for (int i = 0; i < 20; i++) {
        send_text(&c, STR("to and fro"));
        expect(&c, "to and fro");
    }
    /* Our end is told, and the server's end comes back as one. */
    assert_int_equal(SSL_shutdown(c.ssl), 0);
    flush(&c);
    (void)shutdown(c.fd, SHUT_WR);
    assert_true(receive_text(&c, &got, STR_NULL));
    hang_up(&c);
    test_server_close(&t);
}

static void who_closed_its_side_is_still_answered(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    AUTO_BUF struct buf got = BUF_INIT(1 << 20);
    dial(&c, &t, TLS1_3_VERSION);
    send_text(&c, STR("GET /later HTTP/1.1\r\nhost: x\r\n\r\n"));
    assert_int_equal(SSL_shutdown(c.ssl), 0);
    flush(&c);
    (void)shutdown(c.fd, SHUT_WR);
    assert_true(receive_text(&c, &got, STR_NULL));
    assert_has(buf_str(&got), "\r\n\r\nlater");
    hang_up(&c);
    test_server_close(&t);
}

static void sessions_are_resumed(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct client c;
        dial(&c, &t, version);
        send_text(&c, STR(HELLO));
        expect(&c, "hello GET"); /* the ticket of TLS 1.3 has come by then */
        assert_false(SSL_session_reused(c.ssl));
        SSL_SESSION *session = SSL_get1_session(c.ssl);
        assert_true(SSL_SESSION_is_resumable(session));
        assert_int_equal(SSL_SESSION_get_max_early_data(session), 0);
        SSL_CTX *ctx = TAKE_PTR(c.ctx);
        SSL_set_shutdown(c.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); /* else OpenSSL forgets the session */
        hang_up(&c);
        prepare(&c, &t, ctx, NULL);
        assert_int_equal(SSL_set_session(c.ssl, session), 1);
        assert_int_equal(shake(&c), 1);
        assert_true(SSL_session_reused(c.ssl));
        send_text(&c, STR(HELLO));
        expect(&c, "hello GET");
        hang_up(&c);
        SSL_SESSION_free(session);
        SSL_CTX_free(ctx);
    }
    test_server_close(&t);
}

static void keys_may_be_updated(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    dial(&c, &t, TLS1_3_VERSION);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        send_text(&c, STR(HELLO));
        expect(&c, "hello GET");
    }
    /* A flood of them, in one go: other connections have their turn, and this one, when it is let, its answer. */
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(SSL_key_update(c.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        int r = SSL_do_handshake(c.ssl);
        assert_int_equal(r, 1);
    }
    flush(&c);
    still_works(&t);
    hang_up(&c);
    test_server_close(&t);
}

/* ---- what does not ---- */

static void other_protocols_are_refused(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    SSL_CTX *ctx = context(TLS1_3_VERSION);
    prepare(&c, &t, ctx, "\x02h2");
    assert_int_equal(shake(&c), -1);
    assert_int_equal(c.reason, SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
    hang_up(&c);
    prepare(&c, &t, ctx, "\x02h2\x08http/1.1");
    assert_int_equal(shake(&c), 1);
    hang_up(&c);
    SSL_CTX_free(ctx);
    ctx = context(TLS1_1_VERSION);
    prepare(&c, &t, ctx, NULL);
    assert_int_equal(shake(&c), -1);
    hang_up(&c);
    SSL_CTX_free(ctx);
    /* Without forward secrecy, or with a MAC behind the cipher. */
    ctx = context(TLS1_2_VERSION);
    assert_int_equal(SSL_CTX_set_cipher_list(ctx, "AES128-SHA:ECDHE-ECDSA-AES128-SHA"), 1);
    prepare(&c, &t, ctx, NULL);
    assert_int_equal(shake(&c), -1);
    hang_up(&c);
    SSL_CTX_free(ctx);
    still_works(&t);
    test_server_close(&t);
}

static void renegotiation_is_refused(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    char piece[16];
    dial(&c, &t, TLS1_2_VERSION);
    assert_int_equal(SSL_renegotiate(c.ssl), 1);
    assert_int_equal(shake(&c), -1);
    assert_true(SSL_read(c.ssl, piece, sizeof(piece)) <= 0);
    hang_up(&c);
    still_works(&t);
    test_server_close(&t);
}

static void plain_http_is_told(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    static const char *const texts[] = {HELLO, "POST / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "G"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        AUTO_BUF struct buf got = BUF_INIT(4096);
        test_exchange(&t, str_of(texts[i]), false, &got);
        assert_true(str_starts(buf_str(&got), STR("HTTP/1.1 400 ")));
        assert_has(buf_str(&got), "https://");
        assert_has(buf_str(&got), "connection: close");
    }
    assert_int_equal(t.requests, 0);
    still_works(&t);
    test_server_close(&t);
}

static void garbage_ends_the_connection(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    AUTO_BUF struct buf hello = BUF_INIT(16 * 1024);
    struct client c;
    SSL_CTX *ctx = context(TLS1_3_VERSION);
    prepare(&c, &t, ctx, NULL);
    assert_int_equal(SSL_do_handshake(c.ssl), -1);
    char *bytes;
    long n = BIO_get_mem_data(c.to, &bytes);
    assert_true(n > 50);
    (void)buf_append(&hello, bytes, (size_t)n);
    hang_up(&c);
    SSL_CTX_free(ctx);

    static const struct str garbage[] = {{"\0\0\0\0", 4},
                                         {"\x16\x03\x01\xff\xff", 5},
                                         {"\x80\x2e\x01\x03\x01", 5},
                                         {"\x15\x03\x03\x00\x02\x02\x28", 7},
                                         {"\x17\x03\x03\x00\x05hello", 10}};
    for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
        AUTO_BUF struct buf got = BUF_INIT(4096);
        test_exchange(&t, garbage[i], true, &got);
        assert_true(buf_len(&got) <= 7); /* an alert at most */
    }
    /* A true hello that ends early, anywhere, and one with each of its bytes in turn made another. */
    for (size_t i = 0; i < buf_len(&hello); i++) {
        AUTO_BUF struct buf got = BUF_INIT(64 * 1024), changed = BUF_INIT(16 * 1024);
        test_exchange(&t, str_n(buf_data(&hello), i), true, &got);
        assert_true(buf_len(&got) <= 7);
        (void)buf_append_str(&changed, buf_str(&hello));
        buf_data(&changed)[i] = (char)(buf_data(&changed)[i] ^ 0x55);
        test_exchange(&t, buf_str(&changed), true, &got);
    }
    assert_int_equal(t.requests, 0);
    still_works(&t);
    test_server_close(&t);
}

static void a_damaged_record_ends_the_connection(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct client c;
        char record[256];
        dial(&c, &t, version);
        assert_true(SSL_write(c.ssl, HELLO, sizeof(HELLO) - 1) > 0);
        int n = BIO_read(c.to, record, sizeof(record));
        assert_true(n > 20);
        record[n - 3] ^= 1;
        test_send(&t, c.fd, str_n(record, (size_t)n));
        AUTO_BUF struct buf got = BUF_INIT(4096);
        assert_false(receive_text(&c, &got, STR_NULL));
        assert_int_equal(buf_len(&got), 0);
        hang_up(&c);
    }
    assert_int_equal(t.requests, 0);
    test_server_close(&t);
}

/* A FIN that TLS knows nothing of is not the end of what was sent. */
static void a_cut_is_no_end(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    AUTO_BUF struct buf got = BUF_INIT(1 << 20);
    dial(&c, &t, TLS1_3_VERSION);
    send_text(&c, STR("POST /count HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"));
    (void)shutdown(c.fd, SHUT_WR);
    assert_false(receive_text(&c, &got, STR_NULL));
    assert_int_equal(t.body_error, -EPIPE);
    hang_up(&c);
    t.body_error = 0;
    dial(&c, &t, TLS1_3_VERSION);
    send_text(&c, STR("GET /up HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n"));
    expect(&c, "\r\n\r\n");
    (void)shutdown(c.fd, SHUT_WR);
    assert_false(receive_text(&c, &got, STR_NULL));
    assert_int_equal(t.body_error, -EPIPE);
    hang_up(&c);
    t.body_error = 0;
    test_server_close(&t);
}

static void a_response_that_is_cut_looks_so(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client c;
    AUTO_BUF struct buf got = BUF_INIT(1 << 20);
    dial(&c, &t, TLS1_3_VERSION);
    send_text(&c, STR("GET /cut HTTP/1.1\r\nhost: x\r\n\r\n"));
    expect(&c, "one");
    http_abort(t.held);
    assert_false(receive_text(&c, &got, STR_NULL));
    hang_up(&c);
    test_server_close(&t);
}

static void a_slow_handshake_is_cut(void **state)
{
    (void)state;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.header_timeout_ms = 60;
    struct test_server t;
    test_server_open_tls(&t, &limits, tls);
    AUTO_BUF struct buf got = BUF_INIT(4096);
    /* Nothing at all, and the beginning of a hello: both get nothing. */
    test_exchange(&t, STR_NULL, false, &got);
    test_exchange(&t, str_n("\x16\x03\x01\x02\x00\x01", 6), false, &got);
    assert_int_equal(buf_len(&got), 0);
    /* With TLS in place, a slow head is answered as everywhere. */
    struct client c;
    dial(&c, &t, TLS1_3_VERSION);
    send_text(&c, STR("GET /hel"));
    assert_true(receive_text(&c, &got, STR_NULL));
    assert_has(buf_str(&got), "408");
    hang_up(&c);
    test_server_close(&t);
}

/* Each holds buffers of OpenSSL's, and costs whoever begins it next to nothing. */
static void the_oldest_of_many_handshakes_gives_way(void **state)
{
    (void)state;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.handshakes = 2;
    struct test_server t;
    test_server_open_tls(&t, &limits, tls);
    struct client done, more;
    char byte;
    dial(&done, &t, TLS1_3_VERSION);
    int begun[2];
    for (size_t i = 0; i < ARRAY_SIZE(begun); i++) {
        begun[i] = test_connect(&t);
        test_send(&t, begun[i], str_n("\x16\x03\x01\x02\x00\x01", 6));
    }
    assert_int_equal(http_server_connections(t.server), 3);
    dial(&more, &t, TLS1_3_VERSION);
    assert_int_equal(recv(begun[0], &byte, 1, MSG_DONTWAIT), 0);
    assert_int_equal(recv(begun[1], &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    for (int i = 0; i < 2; i++) {
        struct client *c = i ? &more : &done;
        send_text(c, STR("GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"));
        expect(c, "hello GET");
        hang_up(c);
    }
    for (size_t i = 0; i < ARRAY_SIZE(begun); i++)
        (void)close(begun[i]);
    test_server_close(&t);
}

/* Half a record is the beginning of a head, and in memory. */
static void half_a_record_is_half_a_head(void **state)
{
    (void)state;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    limits.header_timeout_ms = 2000;
    limits.heads_bytes = 40 * 1024;
    struct test_server t;
    test_server_open_tls(&t, &limits, tls);
    AUTO_BUF struct buf got = BUF_INIT(4096);
    struct client all[4];
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        dial(&all[i], &t, TLS1_3_VERSION);
        test_send(&t, all[i].fd, STR("\x17\x03\x03\x40half a record"));
        test_turn(&t);
    }
    assert_int_equal(http_server_connections(t.server), 2);
    assert_true(receive_text(&all[3], &got, STR_NULL));
    assert_has(buf_str(&got), "408");
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        hang_up(&all[i]);
    test_server_close(&t);
}

static void draining_ends_connections(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client idle, busy;
    AUTO_BUF struct buf got = BUF_INIT(4096);
    dial(&idle, &t, TLS1_3_VERSION);
    dial(&busy, &t, TLS1_3_VERSION);
    int silent = test_connect(&t);
    test_turn(&t);
    send_text(&busy, STR("GET /hold HTTP/1.1\r\nhost: x\r\n\r\n"));
    assert_int_equal(http_server_connections(t.server), 3);
    http_server_drain(t.server);
    assert_true(receive_text(&idle, &got, STR_NULL));
    assert_int_equal(http_server_connections(t.server), 1);
    (void)http_respond(t.held, 200, NULL, 0, STR("at last"));
    assert_true(receive_text(&busy, &got, STR_NULL));
    assert_has(buf_str(&got), "at last");
    hang_up(&idle);
    hang_up(&busy);
    (void)close(silent);
    test_server_close(&t);
}

static void a_server_that_ends_takes_its_connections_along(void **state)
{
    (void)state;
    struct test_server t;
    test_server_open_tls(&t, NULL, tls);
    struct client waits, reads_not;
    dial(&waits, &t, TLS1_3_VERSION);
    dial(&reads_not, &t, TLS1_2_VERSION);
    int silent = test_connect(&t);
    send_text(&waits, STR("GET /hold HTTP/1.1\r\nhost: x\r\n\r\n"));
    send_text(&reads_not, STR("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n"));
    test_server_close(&t);
    for (int i = 0; i < 2; i++) {
        struct client *c = i ? &reads_not : &waits;
        SSL_free(c->ssl);
        SSL_CTX_free(c->ctx);
        (void)close(c->fd);
    }
    (void)close(silent);
}

static void pairs_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    AUTO_BUF struct buf ca = BUF_INIT(16 * 1024), other = BUF_INIT(16 * 1024);
    struct http_tls *none = NULL;
    assert_int_equal(tls_ca_make("box.test", &ca, &other), 0);
    assert_int_equal(http_tls_new(buf_str(&chain), buf_str(&other), &none), -EINVAL);
    assert_int_equal(http_tls_new(buf_str(&key), buf_str(&key), &none), -EINVAL);
    assert_int_equal(http_tls_new(buf_str(&chain), buf_str(&chain), &none), -EINVAL);
    assert_int_equal(http_tls_new(STR_NULL, buf_str(&key), &none), -EINVAL);
    assert_int_equal(http_tls_new(STR("x"), STR("y"), &none), -EINVAL);
    assert_null(none);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered),
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(requests_may_be_pipelined),
        cmocka_unit_test(large_bodies_go_both_ways),
        cmocka_unit_test(a_slow_reader_gets_all_of_it),
        cmocka_unit_test(an_upgraded_connection_is_raw),
        cmocka_unit_test(who_closed_its_side_is_still_answered),
        cmocka_unit_test(sessions_are_resumed),
        cmocka_unit_test(keys_may_be_updated),
        cmocka_unit_test(other_protocols_are_refused),
        cmocka_unit_test(renegotiation_is_refused),
        cmocka_unit_test(plain_http_is_told),
        cmocka_unit_test(garbage_ends_the_connection),
        cmocka_unit_test(a_damaged_record_ends_the_connection),
        cmocka_unit_test(a_cut_is_no_end),
        cmocka_unit_test(a_response_that_is_cut_looks_so),
        cmocka_unit_test(a_slow_handshake_is_cut),
        cmocka_unit_test(the_oldest_of_many_handshakes_gives_way),
        cmocka_unit_test(half_a_record_is_half_a_head),
        cmocka_unit_test(draining_ends_connections),
        cmocka_unit_test(a_server_that_ends_takes_its_connections_along),
        cmocka_unit_test(pairs_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* TLS sides and their peers: what is refused and with which words, against OpenSSL where ours could not misbehave. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/side_internal.h"
#include "egress/flow/side_tcp.h"
#include "egress/tls/test_both.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/tls1.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

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
    assert_int_equal(b->client.side->bytes_out, 0);
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
    o->side = side_tls_server(side_tcp_accept(&t->rig.loop, fds[0]), t->sandbox, both_leaf(t, NAME), STR_NULL,
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
            both_expect(&t.rig, &o, "ping");
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
    test_ssl_open(&peer, &t, fds[1], false, both_leaf(&t, NAME));
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

/* What a server sends of certificates is kept as long as the connection lasts: it is bounded. */
static void test_long_chain(void **state)
{
    (void)state;
    struct test_tls t;
    test_tls_open(&t);
    for (int i = 0; i < 2; i++) {
        struct test_owner o;
        struct test_ssl peer;
        int fds[2];
        const struct ca_leaf *leaf = both_leaf(&t, NAME);
        test_tcp_pair(fds);
        test_ssl_open(&peer, &t, fds[1], false, leaf);
        for (size_t bytes = 0; bytes < (i ? 48u << 10 : 12u << 10);) {
            assert_int_equal(SSL_add1_chain_cert(peer.ssl, leaf->certificate), 1);
            bytes += (size_t)i2d_X509(leaf->certificate, NULL);
        }
        test_owner_open(&o, NULL);
        o.side = side_tls_client(side_tcp_accept(&t.rig.loop, fds[0]), t.world, NAME, STR_NULL, TIMEOUT_MS,
                                 &test_owner_ops, &o);
        assert_true(test_ssl_handshake(&peer) || i);
        test_until_true(&t.rig, i ? &o.is_failed : &o.is_ready);
        if (i)
            assert_non_null(strstr(o.err.msg, "excessive message size"));
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
    both_expect(&t.rig, &o, "still");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_certificates),
        cmocka_unit_test(test_hostile_certificate_text),
        cmocka_unit_test(test_server_name_version_alpn),
        cmocka_unit_test(test_no_renegotiation),
        cmocka_unit_test(test_no_resumption),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_key_updates),
        cmocka_unit_test(test_time_limit_and_connect),
        cmocka_unit_test(test_alert_before_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in opened TLS, OpenSSL on both ends: an end that TLS does not vouch for is never passed on as one. */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/side_tcp.h"
#include "egress/http/exchange_internal.h"
#include "egress/tls/side_tls.h"
#include "egress/tls/test_tls.h"

#define NAME "api.example.com"
#define GET "GET / HTTP/1.1\r\nhost: " NAME "\r\n\r\n"

struct opened {
    struct test_tls tls;
    struct test_ssl client, server;
    struct exchange *x;
    bool ended, failed;
    int status;
};

static bool on_request(void *ctx, uint64_t id, struct exchange_head *head, struct exchange_refusal *ret_refusal)
{
    (void)ctx, (void)id, (void)head, (void)ret_refusal;
    return true;
}

static void on_answer(void *ctx, uint64_t id, int status)
{
    struct opened *o = ctx;
    (void)id;
    o->status = status;
}

static void on_end(void *ctx, const struct err *err)
{
    struct opened *o = ctx;
    o->ended = true;
    o->failed = err != NULL;
}

static const struct exchange_ops ops = {.on_request = on_request, .on_answer = on_answer, .on_end = on_end};

static void open_all(struct opened *o)
{
    enum { TIMEOUT_MS = 15000 };
    int client[2], server[2];
    struct err err;
    const struct ca_leaf *leaf;
    memset(o, 0, sizeof(*o));
    test_tls_open(&o->tls);
    assert_int_equal(ca_leaf(o->tls.ca, NAME, &leaf, &err), 0);
    test_tcp_pair(client);
    test_tcp_pair(server);
    uv_loop_t *loop = &o->tls.rig.loop;
    struct side *down = side_tls_server(side_tcp_accept(loop, client[0]), o->tls.sandbox, leaf, STR_NULL,
                                        STR("http/1.1"), TIMEOUT_MS, NULL, NULL);
    struct side *up = side_tls_client(side_tcp_accept(loop, server[0]), o->tls.world, NAME, STR("\x08http/1.1"),
                                      TIMEOUT_MS, NULL, NULL);
    o->x = h1_exchange(loop, down, up, STR_NULL, &ops, o);
    test_ssl_open(&o->client, &o->tls, client[1], true, NULL);
    test_ssl_open(&o->server, &o->tls, server[1], false, leaf);
    assert_true(test_ssl_handshake(&o->client));
    assert_true(test_ssl_handshake(&o->server));
    test_ssl_send(&o->client, GET, sizeof(GET) - 1);
    test_ssl_expect(&o->server, STR(GET));
}

static void count_open(uv_handle_t *handle, void *ctx)
{
    *(unsigned *)ctx += !uv_is_closing(handle);
}

/* But for the rig's own timer. */
static bool has_let_go(void *ctx)
{
    unsigned n = 0;
    uv_walk(ctx, count_open, &n);
    return n <= 1;
}

static void close_all(struct opened *o)
{
    exchange_close(o->x);
    test_ssl_fini(&o->client);
    test_ssl_fini(&o->server);
    test_until(&o->tls.rig, has_let_go, &o->tls.rig.loop); /* what lingers sees the end */
    test_tls_close(&o->tls);
}

/* Slowly enough that one thread can play both ends. */
static void pump(struct opened *o, size_t total)
{
    enum { PIECE = 15000 };
    AUTO_FREE char *piece = mem_alloc(PIECE);
    for (size_t sent = 0; sent < total; sent += PIECE) {
        memset(piece, (int)(sent / PIECE % 251), PIECE);
        test_ssl_send(&o->server, piece, PIECE);
        test_ssl_expect(&o->client, str_n(piece, PIECE));
    }
}

static void test_requests(void **state)
{
    (void)state;
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n";
    struct opened o;
    char c;
    open_all(&o);
    for (int i = 0; i < 3; i++) {
        test_ssl_send(&o.server, head, sizeof(head) - 1);
        test_ssl_expect(&o.client, str_of(head));
        pump(&o, 3000000);
        test_ssl_send(&o.client, GET, sizeof(GET) - 1);
        test_ssl_expect(&o.server, STR(GET));
    }
    static const char last[] = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    test_ssl_send(&o.server, last, sizeof(last) - 1);
    test_ssl_expect(&o.client, STR("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
    assert_int_equal(test_ssl_receive(&o.client, &c, 1), 0);
    assert_int_equal(test_ssl_receive(&o.server, &c, 1), 0);
    test_until_true(&o.tls.rig, &o.ended);
    assert_false(o.failed);
    close_all(&o);
}

/* A body that goes until the end, and the end with or without TLS's word for it. */
static void until_the_end(bool vouched)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
    struct opened o;
    char c;
    open_all(&o);
    test_ssl_send(&o.server, head, sizeof(head) - 1);
    test_ssl_expect(&o.client, STR("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"));
    pump(&o, 300000);
    if (vouched)
        (void)SSL_shutdown(o.server.ssl);
    else
        assert_int_equal(shutdown(o.server.fd, SHUT_WR), 0);
    assert_int_equal(test_ssl_receive(&o.client, &c, 1), vouched ? 0 : -1);
    test_until_true(&o.tls.rig, &o.ended);
    assert_int_equal(o.failed, !vouched);
    assert_int_equal(o.status, 200);
    close_all(&o);
}

static void test_ends(void **state)
{
    (void)state;
    until_the_end(true);
    until_the_end(false);
}

static void test_half_a_request(void **state)
{
    (void)state;
    static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n",
                      post[] = "POST / HTTP/1.1\r\nhost: " NAME "\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n";
    struct opened o;
    char c;
    open_all(&o);
    test_ssl_send(&o.server, answer, sizeof(answer) - 1);
    test_ssl_expect(&o.client, str_of(answer));
    test_ssl_send(&o.client, post, sizeof(post) - 1);
    test_ssl_expect(&o.server, str_n(post, sizeof(post) - 1));
    (void)SSL_shutdown(o.client.ssl); /* in good order, as far as TLS knows */
    assert_int_equal(test_ssl_receive(&o.server, &c, 1), -1);
    test_until_true(&o.tls.rig, &o.ended);
    assert_true(o.failed);
    assert_int_equal(o.status, 0);
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_half_a_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns/test_authority.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void put16(struct buf *b, unsigned value)
{
    buf_append_char(b, (char)(value >> 8));
    buf_append_char(b, (char)value);
}

static void put_name(struct buf *b, const char *name)
{
    struct str rest = str_of(name), label;
    while (name[0] && str_split(&rest, '.', &label)) {
        buf_append_char(b, (char)label.n);
        buf_append_str(b, label);
    }
    buf_append_char(b, 0);
}

void authority_begin(struct authority *a, const struct dns_query *q, unsigned rcode)
{
    buf_clear(&a->reply);
    put16(&a->reply, q->id);
    put16(&a->reply, 0x8180 | rcode);
    put16(&a->reply, 1);
    for (int i = 0; i < 3; i++)
        put16(&a->reply, 0);
    buf_append_str(&a->reply, q->question);
}

void authority_add(struct authority *a, const char *owner, uint16_t type, uint32_t ttl, const char *data)
{
    AUTO_BUF struct buf rdata = BUF_INIT(1024);
    struct netaddr addr;
    if (type == DNS_CNAME) {
        put_name(&rdata, data);
    } else {
        uint8_t v6[16];
        assert_true(type == DNS_A ? netaddr_parse(str_of(data), &addr) : uv_inet_pton(AF_INET6, data, v6) == 0);
        buf_append(&rdata, type == DNS_A ? addr.bytes : v6, type == DNS_A ? 4 : 16);
    }
    if (owner[0])
        put_name(&a->reply, owner);
    else
        put16(&a->reply, 0xc00c);
    put16(&a->reply, type);
    put16(&a->reply, 1);
    put16(&a->reply, ttl >> 16);
    put16(&a->reply, ttl & 0xffff);
    put16(&a->reply, (unsigned)buf_len(&rdata));
    buf_append_str(&a->reply, buf_str(&rdata));
    uint8_t *count = (uint8_t *)buf_data(&a->reply) + 6;
    unsigned n = (unsigned)(count[0] << 8 | count[1]) + 1;
    count[0] = (uint8_t)(n >> 8);
    count[1] = (uint8_t)n;
}

struct write {
    uv_write_t req;
    uint8_t bytes[];
};

static void on_written(uv_write_t *req, int status UNUSED)
{
    mem_free(req->data);
}

void authority_say(struct authority *a)
{
    assert_int_equal(buf_error(&a->reply), 0);
    size_t n = buf_len(&a->reply);
    if (a->to) {
        uv_buf_t out = uv_buf_init(buf_data(&a->reply), (unsigned)n);
        (void)uv_udp_try_send(&a->udp, &out, 1, a->to);
        return;
    }
    struct write *w = mem_alloc(sizeof(*w) + 2 + n);
    w->req.data = w;
    w->bytes[0] = (uint8_t)(n >> 8);
    w->bytes[1] = (uint8_t)n;
    memcpy(w->bytes + 2, buf_data(&a->reply), n);
    uv_buf_t out = uv_buf_init((char *)w->bytes, (unsigned)(n + 2));
    if (uv_write(&w->req, a->stream, &out, 1, on_written) < 0)
        mem_free(w);
}

static void asked(struct authority *a, struct str message, bool udp)
{
    struct dns_query q;
    char type[12];
    a->asked++;
    if (dns_query_parse(message, &q) != 0)
        fail_msg("upstream got a message that is no query");
    struct str seen = str_of(a->names);
    if (seen.n + strlen(q.name) + 16 < sizeof(a->names))
        (void)snprintf(a->names + seen.n, sizeof(a->names) - seen.n, "|%s/%s|", q.name, dns_type_name(q.type, type));
    a->fn(a, &q, udp);
}

bool authority_saw(const struct authority *a, const char *what)
{
    char text[300];
    (void)snprintf(text, sizeof(text), "|%s|", what);
    return strstr(a->names, text);
}

static void on_alloc(uv_handle_t *handle UNUSED, size_t hint UNUSED, uv_buf_t *ret_buf)
{
    static char room[65536];
    *ret_buf = uv_buf_init(room, sizeof(room));
}

static void on_udp(uv_udp_t *udp, ssize_t n, const uv_buf_t *in, const struct sockaddr *from, unsigned flags UNUSED)
{
    struct authority *a = udp->data;
    if (n <= 0 || !from)
        return;
    a->to = from;
    asked(a, str_n(in->base, (size_t)n), true);
    a->to = NULL;
}

static void on_free(uv_handle_t *handle)
{
    mem_free(handle);
}

/* Queries come in one piece here. */
static void on_tcp(uv_stream_t *stream, ssize_t n, const uv_buf_t *in)
{
    struct authority *a = stream->data;
    struct str message;
    if (n < 0) {
        uv_close((uv_handle_t *)stream, on_free);
        return;
    }
    if (dns_frame_get(str_n(in->base, (size_t)n), &message) != 1)
        return;
    a->stream = stream;
    asked(a, message, false);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct authority *a = listener->data;
    uv_tcp_t *tcp = mem_new(uv_tcp_t);
    assert_int_equal(status, 0);
    assert_int_equal(uv_tcp_init(a->loop, tcp), 0);
    tcp->data = a;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)tcp), 0);
    assert_int_equal(uv_read_start((uv_stream_t *)tcp, on_alloc, on_tcp), 0);
}

void authority_start(struct authority *a, uv_loop_t *loop, authority_fn fn)
{
    *a = (struct authority){.loop = loop, .fn = fn, .reply = BUF_INIT(65535)};
    struct sockaddr_in in;
    int size = sizeof(in), r;
    do { /* until the port is free for both */
        assert_int_equal(uv_udp_init(loop, &a->udp), 0);
        assert_int_equal(uv_tcp_init(loop, &a->tcp), 0);
        a->udp.data = a->tcp.data = a;
        assert_int_equal(uv_ip4_addr("127.0.0.1", 0, &in), 0);
        assert_int_equal(uv_udp_bind(&a->udp, (struct sockaddr *)&in, 0), 0);
        assert_int_equal(uv_udp_getsockname(&a->udp, (struct sockaddr *)&in, &size), 0);
        assert_int_equal(uv_tcp_bind(&a->tcp, (struct sockaddr *)&in, 0), 0);
        r = uv_listen((uv_stream_t *)&a->tcp, 8, on_connection);
        if (r < 0) {
            uv_close((uv_handle_t *)&a->udp, NULL);
            uv_close((uv_handle_t *)&a->tcp, NULL);
            (void)uv_run(loop, UV_RUN_NOWAIT);
        }
    } while (r == UV_EADDRINUSE);
    assert_int_equal(r, 0);
    assert_int_equal(uv_udp_recv_start(&a->udp, on_alloc, on_udp), 0);
    (void)snprintf(a->address, sizeof(a->address), "127.0.0.1:%u", ntohs(in.sin_port));
}

void authority_stop(struct authority *a)
{
    uv_close((uv_handle_t *)&a->udp, NULL);
    uv_close((uv_handle_t *)&a->tcp, NULL);
    buf_fini(&a->reply);
}

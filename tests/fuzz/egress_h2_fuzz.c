/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of a client (behind preface and SETTINGS) against an upstream that answers each request, or frames of an
 * upstream against a client with three requests. Whatever comes: upstream gets heads that the owner allowed, in their
 * order, and no others, and nothing is left over.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "egress/flow/side_tcp.h"
#include "egress/http/exchange.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t *loop;
static struct buf allowed = {.max = 1 << 24}; /* heads, each with a NUL behind, that upstream has not seen yet */
static struct buf seen = {.max = 1 << 24};    /* the one that upstream is reading */
static unsigned requests, answers;
static bool over;

static void must(bool so)
{
    if (!so)
        abort();
}

static bool on_request(void *ctx, uint64_t id, struct exchange_head *h, struct exchange_refusal *refusal)
{
    (void)ctx, (void)id;
    if (h->path.n > 1 && h->path.p[1] == '-') {
        refusal->status = 421;
        return false;
    }
    if (h->path.n > 1 && h->path.p[1] == '=' && h->body_is == EXCHANGE_BODY_UNREAD) {
        refusal->wants = EXCHANGE_WANTS_BODY;
        return false;
    }
    if (h->body_is == EXCHANGE_BODY_WHOLE)
        h->body = str_of(arena_printf(h->arena, "%.*s%.*s", STR_ARG(h->body), STR_ARG(h->body)));
    requests++;
    buf_printf(&allowed, ":method: %.*s\n:authority: %.*s\n:path: %.*s\n", STR_ARG(h->method), STR_ARG(h->authority),
               STR_ARG(h->path));
    for (size_t i = 0; i < h->n_fields; i++)
        buf_printf(&allowed, "%.*s: %.*s\n", STR_ARG(h->fields[i].name), STR_ARG(h->fields[i].value));
    buf_append_char(&allowed, 0);
    return true;
}

static void on_answer(void *ctx, uint64_t id, int status)
{
    (void)ctx, (void)id, (void)status;
    answers++;
}

static void on_end(void *ctx, const struct err *err)
{
    (void)ctx, (void)err;
    over = true;
}

static const struct exchange_ops ops = {.on_request = on_request, .on_answer = on_answer, .on_end = on_end};

/* ---- upstream ---- */

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    (void)session, (void)frame, (void)ctx;
    buf_clear(&seen);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *ctx)
{
    (void)session, (void)flags, (void)ctx;
    struct str s = str_n(name, n_name);
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST && !str_eqc(s, ":scheme") && !str_eqc(s, "content-length"))
        buf_printf(&seen, "%.*s: %.*s\n", STR_ARG(s), (int)n_value, (const char *)value);
    return 0;
}

static int on_invalid(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                      const uint8_t *value, size_t n_value, uint8_t flags, void *ctx)
{
    (void)session, (void)frame, (void)name, (void)n_name, (void)value, (void)n_value, (void)flags, (void)ctx;
    abort();
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    (void)ctx;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        buf_append_char(&seen, 0);
        for (;;) { /* one that the client took back may never have been sent */
            must(buf_len(&allowed) > 0);
            bool same = strcmp(buf_data(&allowed), buf_data(&seen)) == 0;
            buf_consume(&allowed, strlen(buf_data(&allowed)) + 1);
            if (same)
                break;
        }
    }
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        nghttp2_nv nv[] = {{(uint8_t *)":status", (uint8_t *)"200", 7, 3, NGHTTP2_NV_FLAG_NONE}};
        (void)nghttp2_submit_response(session, frame->hd.stream_id, nv, 1, NULL);
    }
    return 0;
}

static nghttp2_session *half(bool is_server)
{
    nghttp2_session *session;
    nghttp2_session_callbacks *c;
    must(nghttp2_session_callbacks_new(&c) == 0);
    if (is_server) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin);
        nghttp2_session_callbacks_set_on_header_callback(c, on_header);
        nghttp2_session_callbacks_set_on_invalid_header_callback(c, on_invalid);
        nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
    }
    must((is_server ? nghttp2_session_server_new(&session, c, NULL) : nghttp2_session_client_new(&session, c, NULL)) ==
         0);
    must(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
    nghttp2_session_callbacks_del(c);
    return session;
}

static void ask(nghttp2_session *session)
{
    static const char *const methods[] = {"GET", "HEAD", "POST"};
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        nghttp2_nv nv[] = {
            {(uint8_t *)":method", (uint8_t *)(uintptr_t)methods[i], 7, strlen(methods[i]), NGHTTP2_NV_FLAG_NONE},
            {(uint8_t *)":scheme", (uint8_t *)"https", 7, 5, NGHTTP2_NV_FLAG_NONE},
            {(uint8_t *)":authority", (uint8_t *)"a", 10, 1, NGHTTP2_NV_FLAG_NONE},
            {(uint8_t *)":path", (uint8_t *)"/", 5, 1, NGHTTP2_NV_FLAG_NONE}};
        must(nghttp2_submit_request(session, NULL, nv, ARRAY_SIZE(nv), NULL, NULL) > 0);
    }
}

static void exchange_bytes(nghttp2_session *session, int fd)
{
    uint8_t piece[65536];
    const uint8_t *p;
    ssize_t n;
    while ((n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT)) > 0)
        if (session)
            must(nghttp2_session_mem_recv(session, piece, (size_t)n) >= 0); /* what we write is valid */
    while (session && (n = nghttp2_session_mem_send(session, &p)) > 0)
        (void)send(fd, p, (size_t)n, MSG_NOSIGNAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
                      settings[] = "\0\0\0\4\0\0\0\0\0";
    int client[2], upstream[2];
    if (!loop) {
        loop = mem_new(uv_loop_t);
        uv_loop_init(loop);
    }
    if (size < 2 || size > 60000)
        return 0;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, client) == 0);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, upstream) == 0);
    buf_clear(&allowed);
    requests = answers = 0;
    over = false;
    bool by_upstream = data[0] & 1;
    size_t step = MAX((size_t)data[1], 1 + size / 100);
    struct str text = str_n(data + 2, size - 2);
    struct exchange *x =
        h2_exchange(loop, side_tcp_accept(loop, client[1]), side_tcp_accept(loop, upstream[1]), STR_NULL, &ops, NULL);
    nghttp2_session *client_session = by_upstream ? half(false) : NULL,
                    *server_session = by_upstream ? NULL : half(true);
    int fd = by_upstream ? upstream[0] : client[0];
    if (by_upstream) {
        ask(client_session);
        must(send(fd, settings, sizeof(settings) - 1, MSG_NOSIGNAL) > 0);
    } else {
        must(send(fd, preface, sizeof(preface) - 1, MSG_NOSIGNAL) > 0);
    }
    for (bool last = false; !last;) {
        for (int i = 0; i < 3; i++) {
            (void)uv_run(loop, UV_RUN_NOWAIT);
            exchange_bytes(client_session, client[0]);
            exchange_bytes(server_session, upstream[0]);
        }
        size_t n = MIN(step, text.n);
        last = over || n == 0 || send(fd, text.p, n, MSG_NOSIGNAL) <= 0;
        text = str_sub(text, n);
    }
    (void)shutdown(fd, SHUT_WR);
    for (int i = 0; i < 3; i++)
        (void)uv_run(loop, UV_RUN_NOWAIT);
    must(over && answers == requests); /* an end of either is the end */
    exchange_close(x);
    (void)close(client[0]);
    (void)close(upstream[0]);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    nghttp2_session_del(client_session);
    nghttp2_session_del(server_session);
    return 0;
}

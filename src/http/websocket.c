/* SPDX-License-Identifier: Apache-2.0 */
#include "http/websocket.h"
#include "base/mem.h"
#include "base/sha1.h"

#include <wslay/wslay.h>

enum { UNHEARD_MAX = 4096, KEY_BYTES = 16 };

struct websocket {
    struct http_request *req;
    wslay_event_context_ptr wslay;
    struct str in; /* what came and was not looked at yet */
    websocket_fn fn;
    void *ctx;
    bool heard, is_mute;
};

static bool websocket_says(const struct http_request *req, const char *header, const char *value)
{
    struct str v = http_header_get(req, header);
    return v.p && str_eq_nocase(v, str_of(value));
}

bool websocket_is_wanted(const struct http_request *req)
{
    return http_wants_upgrade(req) && websocket_says(req, "upgrade", "websocket");
}

static ssize_t websocket_on_recv(wslay_event_context_ptr ctx, uint8_t *to, size_t n, int flags UNUSED, void *user)
{
    struct websocket *w = user;
    n = MIN(n, w->in.n);
    if (!n) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(to, w->in.p, n);
    w->in = str_sub(w->in, n);
    return (ssize_t)n;
}

static ssize_t websocket_on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t n, int flags UNUSED,
                                 void *user)
{
    const struct websocket *w = user;
    if (w->is_mute || http_response_write(w->req, str_n((const char *)data, n)) >= 0)
        return (ssize_t)n;
    wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static void websocket_on_message(wslay_event_context_ptr ctx UNUSED, const struct wslay_event_on_msg_recv_arg *m,
                                 void *user)
{
    const struct websocket *w = user;
    if (w->fn && (m->opcode == WSLAY_TEXT_FRAME || m->opcode == WSLAY_BINARY_FRAME))
        w->fn(w->ctx, m->opcode == WSLAY_TEXT_FRAME, str_n((const char *)m->msg, m->msg_length));
}

static void websocket_on_data(struct http_request *req, struct str data, void *ctx)
{
    struct websocket *w = ctx;
    w->in = data;
    w->heard = true;
    int r = wslay_event_recv(w->wslay);
    /* Who doesn't read is not answered each ping (RFC 6455 section 5.5.3). */
    w->is_mute = http_response_full(req) && !wslay_event_get_close_received(w->wslay);
    r = r ? r : wslay_event_send(w->wslay);
    w->is_mute = false;
    w->in = STR_NULL;
    if (r == 0 && wslay_event_get_close_received(w->wslay))
        (void)http_response_end(req);
    else if (r || !wslay_event_want_read(w->wslay)) /* it broke the protocol, which it was told */
        http_abort(req);
}

static void websocket_on_end(struct http_request *req, void *ctx UNUSED)
{
    (void)http_response_end(req);
}

static void websocket_on_error(struct http_request *req UNUSED, int error UNUSED, void *ctx UNUSED)
{
}

static void websocket_answer_key(struct str key, struct buf *to)
{
    uint8_t digest[SHA1_BYTES];
    struct sha1 s;
    sha1_init(&s);
    sha1_add(&s, key);
    sha1_add(&s, STR("258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    sha1_end(&s, digest);
    buf_append_base64(to, str_n((const char *)digest, sizeof(digest)));
}

int websocket_accept(struct http_request *req, websocket_fn fn, void *ctx, struct websocket **ret_socket)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = websocket_on_recv,
                                                           .send_callback = websocket_on_send,
                                                           .on_msg_recv_callback = websocket_on_message};
    static const struct http_body_ops ops = {websocket_on_data, websocket_on_end, websocket_on_error};
    AUTO_BUF struct buf key = BUF_INIT(64), answer = BUF_INIT(64);
    struct str given = http_header_get(req, "sec-websocket-key");
    if (!websocket_is_wanted(req) || !websocket_says(req, "sec-websocket-version", "13") || !given.p ||
        buf_append_unbase64(&key, given) < 0 || buf_len(&key) != KEY_BYTES)
        return -EPROTO;
    websocket_answer_key(given, &answer);
    const struct http_header headers[] = {HTTP_HEADER("upgrade", "websocket"),
                                          HTTP_HEADER_STR("sec-websocket-accept", buf_str(&answer))};
    struct websocket *w = mem_new(struct websocket);
    w->req = req;
    w->fn = fn;
    w->ctx = ctx;
    if (wslay_event_context_server_init(&w->wslay, &callbacks, w) != 0 ||
        http_upgrade(req, headers, ARRAY_SIZE(headers)) < 0) {
        websocket_free(w);
        return -EPROTO;
    }
    wslay_event_config_set_max_recv_msg_length(w->wslay, fn ? WEBSOCKET_MESSAGE_MAX : UNHEARD_MAX);
    http_stream_body(req, &ops, w);
    *ret_socket = w;
    return 0;
}

void websocket_free(struct websocket *w)
{
    if (!w)
        return;
    wslay_event_context_free(w->wslay);
    mem_free(w);
}

static void websocket_head(struct buf *b, unsigned opcode, uint64_t n)
{
    enum { FIN = 0x80, SHORT_MAX = 125, LENGTH_16 = 126, LENGTH_64 = 127 };
    unsigned bytes = n <= SHORT_MAX ? 0 : n <= UINT16_MAX ? 2 : 8;
    buf_append_char(b, (char)(FIN | opcode));
    buf_append_char(b, bytes == 0 ? (char)n : bytes == 2 ? LENGTH_16 : LENGTH_64);
    while (bytes)
        buf_append_char(b, (char)(n >> 8 * --bytes));
}

void websocket_append(struct buf *b, struct str text)
{
    websocket_head(b, WSLAY_TEXT_FRAME, text.n);
    buf_append_str(b, text);
}

void websocket_append_binary(struct buf *b, struct str head, struct str rest)
{
    websocket_head(b, WSLAY_BINARY_FRAME, head.n + rest.n);
    buf_append_str(b, head);
    buf_append_str(b, rest);
}

void websocket_ping(struct websocket *w)
{
    if (wslay_event_queue_msg(w->wslay, &(struct wslay_event_msg){.opcode = WSLAY_PING}) == 0)
        (void)wslay_event_send(w->wslay);
}

bool websocket_heard(struct websocket *w)
{
    bool heard = w->heard;
    w->heard = false;
    return heard;
}

void websocket_close_as(struct websocket *w, uint16_t code, const char *reason)
{
    if (wslay_event_queue_close(w->wslay, code, (const uint8_t *)reason, strlen(reason)) == 0)
        (void)wslay_event_send(w->wslay);
    (void)http_response_end(w->req);
}

void websocket_close(struct websocket *w)
{
    websocket_close_as(w, WSLAY_CODE_NORMAL_CLOSURE, "");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/rpc.h"
#include "api/e2b/envd/accept_encoding.h"
#include "base/mem.h"
#include "http/client/connect.h"
#include "http/gzip.h"

enum { KEEPALIVE_DEFAULT_S = 90, KEEPALIVE_MAX_S = 3600 };

/* What is smaller gains nothing, what is larger would hold the loop. */
enum { RPC_GZIP_LEVEL = 1, GZIP_MIN = 1024, GZIP_MAX = 1024 * 1024 };

static bool rpc_streams(const struct call *c)
{
    return c->route->flags & RPC_STREAM;
}

static bool rpc_wants_gzip(const struct call *c)
{
    struct str accepted = http_header_get(c->req, rpc_streams(c) ? "connect-accept-encoding" : "accept-encoding");
    return accepted.p ? accept_encoding_choose(accepted) == ACCEPT_GZIP : rpc_has_gzip(c);
}

/* Sends the head of a stream's answer, once. */
static void rpc_begin(struct call *c)
{
    static const struct http_header headers[] = {{STR("content-type"), STR("application/connect+json")},
                                                 {STR("connect-content-encoding"), STR("gzip")}};
    if (!c->answered && !http_response_begun(c->req))
        http_response_begin(c->req, 200, headers, rpc_wants_gzip(c) ? 2 : 1, -1);
}

void rpc_send(struct call *c, struct str envelope)
{
    AUTO_BUF struct buf packed = BUF_INIT(GZIP_MAX);
    uint8_t head[CONNECT_HEAD];
    rpc_begin(c);
    if (c->answered)
        return;
    if (envelope.n < GZIP_MIN || !rpc_wants_gzip(c) ||
        gzip_append(&packed, str_sub(envelope, CONNECT_HEAD), RPC_GZIP_LEVEL) < 0) {
        http_response_write(c->req, envelope);
        return;
    }
    connect_head(head, CONNECT_FLAG_COMPRESSED, buf_len(&packed));
    http_response_writev(c->req, (struct str[]){str_n((char *)head, sizeof(head)), buf_str(&packed)}, 2);
}

void rpc_answer(struct call *c, struct buf *body)
{
    AUTO_BUF struct buf packed = BUF_INIT(GZIP_MAX);
    size_t n = buf_len(body);
    if (!c->answered && n >= GZIP_MIN && n <= GZIP_MAX && buf_error(body) == 0 && rpc_wants_gzip(c) &&
        gzip_append(&packed, buf_str(body), RPC_GZIP_LEVEL) == 0) {
        http_add_header(c->req, STR("content-encoding"), STR("gzip"));
        body = &packed;
    }
    call_json_buf(c, 200, body);
}

static void end_stream(struct call *c, enum err_code code, struct str message)
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    if (c->answered)
        return;
    connect_append_end(&b, code, message);
    rpc_send(c, buf_str(&b));
    call_end(c);
}

void rpc_cut(struct call *c)
{
    if (rpc_streams(c) && c->req)
        end_stream(c, ERR_UNAVAILABLE, STR("the sandbox was killed or reached its end of life"));
    else if (c->req)
        http_abort(c->req);
    call_done(c);
}

void rpc_end(struct call *c)
{
    end_stream(c, ERR_OK, STR_NULL);
}

void rpc_end_failed(struct call *c, enum err_code code, struct str message)
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    if (c->answered || call_lost(c, code))
        return;
    if (rpc_streams(c)) {
        end_stream(c, code, message);
        return;
    }
    connect_append_error(&b, code, message);
    call_json(c, connect_status(code), buf_str(&b));
}

bool rpc_fail(struct call *c, enum err_code code, const char *fmt, ...)
{
    char message[1024];
    FORMAT_ARGS(message, fmt);
    rpc_end_failed(c, code, str_of(message));
    return false;
}

/* ---- the request ---- */

static bool check_headers(struct call *c)
{
    struct str version = http_header_get(c->req, "connect-protocol-version");
    struct str encoding = http_header_get(c->req, rpc_streams(c) ? "connect-content-encoding" : "content-encoding");
    struct str type = rpc_streams(c) ? STR("application/connect+json") : STR("application/json");
    int r;
    if (!call_has_type(c, type)) {
        http_add_header(c->req, STR("accept-post"), type);
        call_empty(c, 415);
        return false;
    }
    if (version.n && !str_eq(version, STR("1")))
        return rpc_fail(c, ERR_INVALID_ARGUMENT, "connect-protocol-version must be \"1\"");
    if (encoding.n && !str_eq_nocase(encoding, STR("identity")) && !str_eq_nocase(encoding, STR("gzip")))
        return rpc_fail(c, ERR_UNIMPLEMENTED, "unknown compression \"%.*s\": supported encodings are gzip",
                        STR_ARG(encoding));
    r = connect_parse_timeout(http_header_get(c->req, "connect-timeout-ms"), &c->timeout_ms);
    if (r < 0)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "parse timeout: Connect-Timeout-Ms must be a number of up to 10 digits");
    else if (r > 0 && c->timeout_ms == 0)
        rpc_fail(c, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
    else
        return true;
    return false;
}

bool rpc_has_gzip(const struct call *c)
{
    const char *header = rpc_streams(c) ? "connect-content-encoding" : "content-encoding";
    return str_eq_nocase(http_header_get(c->req, header), STR("gzip"));
}

int rpc_unpack(struct call *c, struct str packed, struct buf *b)
{
    int r = gunzip_append(b, packed);
    if (r == -EFBIG)
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the message is too large");
    else if (r < 0)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "decompress: the message is not gzip");
    return r;
}

void rpc_read(struct call *c, struct str text, void (*then)(struct call *c))
{
    struct err err;
    c->holder.bytes = json_weight(text);
    if (text.n == 0)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: zero-length payload is not a valid JSON object");
    else if (json_read_object(text, false, &c->body, &err) < 0)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: %s", err.msg);
    else if (call_takes(c, c->holder.bytes - text.n))
        then(c);
}

static void on_unary_body(struct http_request *req UNUSED, int error, struct str body, void *ctx)
{
    AUTO_BUF struct buf plain = BUF_INIT(BODY_MAX);
    struct call *c = ctx;
    if (error == -EMSGSIZE)
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the message is too large");
    else if (error == 0 && !rpc_has_gzip(c))
        rpc_read(c, body, call_start);
    else if (error == 0 && rpc_unpack(c, body, &plain) == 0)
        rpc_read(c, buf_str(&plain), call_start);
}

static void on_unary_timeout(struct call *c)
{
    if (c->is_held && !c->timeout_ms) { /* for as long as the core lets it wait */
        call_set_timer(c, RPC_TIMEOUT_MS, on_unary_timeout);
        return;
    }
    exec_call_cancel(TAKE_PTR(c->exec));
    file_call_cancel(TAKE_PTR(c->file));
    rpc_fail(c, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
}

static void on_stream_body(struct http_request *req UNUSED, int error, struct str body, void *ctx)
{
    AUTO_BUF struct buf plain = BUF_INIT(BODY_MAX);
    struct call *c = ctx;
    struct str message;
    bool compressed = false;
    if (error == -EMSGSIZE) {
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the message is too large");
        return;
    }
    if (error < 0)
        return;
    if (body.n == 0) {
        rpc_fail(c, ERR_UNIMPLEMENTED, "the request has zero messages");
        return;
    }
    switch (connect_decode_one(body, BODY_MAX, rpc_has_gzip(c) ? &compressed : NULL, &message)) {
    case 0:
        if (!compressed)
            rpc_read(c, message, call_start);
        else if (rpc_unpack(c, message, &plain) == 0)
            rpc_read(c, buf_str(&plain), call_start);
        break;
    case -EMSGSIZE:
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the message is too large");
        break;
    case -ENOTSUP:
        rpc_fail(c, ERR_INTERNAL, "protocol error: sent compressed message without compression support");
        break;
    default:
        rpc_fail(c, ERR_INVALID_ARGUMENT, "protocol error: the body must be exactly one enveloped message");
        break;
    }
}

void rpc_run(struct call *c)
{
    c->body_error = "unmarshal message: ";
    if (!check_headers(c))
        return;
    if (!rpc_streams(c))
        call_set_timer(c, c->timeout_ms ? c->timeout_ms : RPC_TIMEOUT_MS, on_unary_timeout);
    if (c->route->flags & RPC_READS)
        call_start(c);
    else if (rpc_streams(c))
        http_read_body(c->req, BODY_MAX + CONNECT_HEAD, call_takes, on_stream_body, c);
    else
        http_read_body(c->req, BODY_MAX, call_takes, on_unary_body, c);
}

void *rpc_stream_begin(struct call *c, size_t n, struct str keepalive)
{
    struct rpc_stream *s = call_state(c, n, NULL);
    uint64_t seconds;
    if (str_to_u64(http_header_get(c->req, "keepalive-ping-interval"), &seconds) < 0 || seconds == 0)
        seconds = KEEPALIVE_DEFAULT_S;
    s->keepalive_ms = MIN(seconds, (uint64_t)KEEPALIVE_MAX_S) * 1000;
    s->keepalive = keepalive;
    s->last = clock_mono();
    return s;
}

void rpc_stream_send(struct call *c)
{
    struct rpc_stream *s = c->state;
    struct buf *b = &e2b_of(c)->scratch;
    rpc_send(c, buf_str(b));
    buf_clear(b);
    s->last = clock_mono();
}

static void rpc_stream_tick(struct call *c)
{
    struct rpc_stream *s = c->state;
    usec_t now = clock_mono();
    if (s->deadline && now >= s->deadline) {
        rpc_fail(c, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
        return;
    }
    if (now - s->last >= s->keepalive_ms * USEC_PER_MS) {
        s->last = now;
        if (!c->unacked) { /* a client that does not even take what it is sent needs none */
            connect_append(&e2b_of(c)->scratch, 0, s->keepalive);
            rpc_stream_send(c);
        }
    }
    rpc_stream_alive(c);
}

void rpc_stream_alive(struct call *c)
{
    const struct rpc_stream *s = c->state;
    usec_t due = s->last + s->keepalive_ms * USEC_PER_MS, now = clock_mono();
    if (s->deadline && s->deadline < due)
        due = s->deadline;
    call_set_timer(c, due > now ? (due - now + USEC_PER_MS - 1) / USEC_PER_MS : 0, rpc_stream_tick);
}

int rpc_append_bytes(struct buf *b, struct str base64)
{
    AUTO_FREE char *standard = NULL;
    if (base64.n == 0)
        return 0;
    if (!memchr(base64.p, '-', base64.n) && !memchr(base64.p, '_', base64.n))
        return buf_append_unbase64(b, base64);
    standard = mem_dup(base64.p, base64.n);
    for (size_t i = 0; i < base64.n; i++)
        standard[i] = (char)(standard[i] == '-' ? '+' : standard[i] == '_' ? '/' : standard[i]);
    return buf_append_unbase64(b, str_n(standard, base64.n));
}

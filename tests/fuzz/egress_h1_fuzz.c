/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a client against an upstream that answers each request, or bytes of an upstream against a client with one
 * request. Whatever comes: upstream gets the heads that the owner allowed, in their order, in the one form that we
 * write, each with a body that is framed by it, and nothing else; every allowed request is told its answer once; and
 * nothing is left over.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "egress/flow/side_tcp.h"
#include "egress/http/exchange.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t *loop;
static struct exchange *x;
static struct buf allowed = {.max = 1 << 24}; /* heads, each with a NUL behind, that upstream has not seen yet */
static struct buf wire = {.max = 1 << 24};    /* what upstream got and is not looked at yet */
static unsigned requests, answers, served;
static bool over, waited;

static void must(bool so)
{
    if (!so)
        abort();
}

static bool on_request(void *ctx, uint64_t id, struct exchange_head *h, struct exchange_refusal *refusal)
{
    (void)ctx, (void)id;
    if (h->path.n > 1 && h->path.p[1] == '-') {
        refusal->status = 403;
        return false;
    }
    if (h->path.n > 1 && h->path.p[1] == '=' && h->body_is == EXCHANGE_BODY_UNREAD) {
        refusal->wants = EXCHANGE_WANTS_BODY;
        return false;
    }
    if (h->path.n > 1 && h->path.p[1] == '~' && (waited = !waited)) {
        refusal->wants = EXCHANGE_WANTS_TIME;
        exchange_resume(x);
        return false;
    }
    if (h->body_is == EXCHANGE_BODY_WHOLE)
        h->body = str_of(arena_printf(h->arena, "%.*s%.*s", STR_ARG(h->body), STR_ARG(h->body)));
    if (h->path.n > 1 && h->path.p[1] == '+')
        exchange_set(h, STR("authorization"), STR("secret"));
    requests++;
    buf_printf(&allowed, "%.*s %.*s HTTP/1.1\r\nhost: %.*s\r\n", STR_ARG(h->method), STR_ARG(h->path),
               STR_ARG(h->authority));
    for (size_t i = 0; i < h->n_fields; i++) {
        must(!str_eqc(h->fields[i].name, "host") && !str_eqc(h->fields[i].name, "content-length") &&
             !str_eqc(h->fields[i].name, "transfer-encoding") && !str_eqc(h->fields[i].name, "connection"));
        buf_printf(&allowed, "%.*s: %.*s\r\n", STR_ARG(h->fields[i].name), STR_ARG(h->fields[i].value));
    }
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

/* The fields of `head` that the owner may not have seen: "upgrade" of HTTP/1.0 or with a body is dropped behind its
 * back, so that one may be missing. */
static bool same_head(struct str seen, struct str expected, struct str *ret_rest)
{
    struct str line;
    while (expected.n) {
        const char *end = memmem(expected.p, expected.n, "\r\n", 2);
        line = str_n(expected.p, (size_t)(end + 2 - expected.p));
        expected = str_sub(expected, line.n);
        if (str_starts(seen, line))
            seen = str_sub(seen, line.n);
        else if (!str_starts(line, STR("upgrade: ")) && !str_starts(line, STR("expect: ")))
            return false;
    }
    *ret_rest = seen;
    return true;
}

/* The length of the next whole request on the wire; 0: not there yet. */
static size_t next_request(void)
{
    struct str s = buf_str(&wire), expected = buf_str(&allowed), rest;
    const char *end = s.n ? memmem(s.p, s.n, "\r\n\r\n", 4) : NULL;
    if (!end)
        return 0;
    size_t head = (size_t)(end - s.p) + 4;
    must(expected.n > 0);
    expected.n = strlen(expected.p);
    must(same_head(str_n(s.p, head), expected, &rest));
    uint64_t length = 0;
    bool chunked = false;
    while (!str_eqc(rest, "\r\n")) {
        struct str line;
        must(str_split(&rest, '\n', &line) && line.n > 0);
        line.n--;
        if (str_starts(line, STR("content-length: ")))
            must(str_to_u64(str_sub(line, 16), &length) == 0 && !chunked);
        else if (str_eqc(line, "transfer-encoding: chunked"))
            chunked = true;
        else
            must(str_starts(line, STR("connection: ")));
    }
    if (!chunked)
        return length > s.n - head ? 0 : head + (size_t)length;
    for (struct str body = str_sub(s, head);;) {
        const char *lf = body.n ? memmem(body.p, body.n, "\r\n", 2) : NULL;
        if (!lf)
            return 0;
        size_t n = strtoul(body.p, NULL, 16), line = (size_t)(lf - body.p) + 2;
        if (n == 0) { /* trailers, then an empty line */
            const char *last = memmem(lf, body.n - line + 2, "\r\n\r\n", 4);
            return last ? (size_t)(last + 4 - s.p) : 0;
        }
        if (body.n < line + n + 2)
            return 0;
        must(memcmp(body.p + line + n, "\r\n", 2) == 0);
        body = str_sub(body, line + n + 2);
    }
}

static void serve(int fd)
{
    static const char ok[] = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    size_t n;
    while ((n = next_request())) {
        must(n <= buf_len(&wire));
        buf_consume(&wire, n);
        buf_consume(&allowed, strlen(buf_data(&allowed)) + 1);
        served++;
        if (fd >= 0)
            (void)send(fd, ok, sizeof(ok) - 1, MSG_NOSIGNAL);
    }
}

static void turn(int client, int upstream, bool serves)
{
    char scrap[65536];
    for (int i = 0; i < 4; i++) {
        (void)uv_run(loop, UV_RUN_NOWAIT);
        while (client >= 0 && recv(client, scrap, sizeof(scrap), MSG_DONTWAIT) > 0)
            ;
        ssize_t n;
        while ((n = recv(upstream, scrap, sizeof(scrap), MSG_DONTWAIT)) > 0)
            must(buf_append(&wire, scrap, (size_t)n) == 0);
        serve(serves ? upstream : -1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const asked[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"};
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
    buf_clear(&wire);
    requests = answers = served = 0;
    over = waited = false;
    bool by_upstream = data[0] & 1;
    size_t step = MAX((size_t)data[1], 1 + size / 200);
    struct str text = str_n(data + 2, size - 2), request = str_of(asked[data[0] / 2 % ARRAY_SIZE(asked)]);
    x = h1_exchange(loop, side_tcp_accept(loop, client[1]), side_tcp_accept(loop, upstream[1]), STR_NULL, &ops, NULL);
    int fd = by_upstream ? upstream[0] : client[0];
    if (by_upstream) {
        must(send(client[0], request.p, request.n, MSG_NOSIGNAL) > 0);
        turn(client[0], upstream[0], false);
    }
    while (text.n && !over) {
        size_t n = MIN(step, text.n);
        if (send(fd, text.p, n, MSG_NOSIGNAL) <= 0)
            break;
        text = str_sub(text, n);
        turn(client[0], upstream[0], !by_upstream);
    }
    (void)shutdown(fd, SHUT_WR);
    turn(client[0], upstream[0], !by_upstream);
    must(served <= requests && answers <= requests);
    exchange_close(TAKE_PTR(x));
    turn(client[0], upstream[0], false);
    (void)close(client[0]);
    (void)close(upstream[0]);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    must(!over || answers == requests);
    return 0;
}

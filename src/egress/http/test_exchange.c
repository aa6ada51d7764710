/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/http/test_exchange.h"
#include "base/fd.h"
#include "egress/flow/side_tcp.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { GOT_MAX = 256 * 1024 * 1024 };

/* ---- the owner ---- */

/* "/body...": as a whole, which then becomes "body=" and itself twice. "/wait...": once the test has resumed it. */
static bool rig_wants(struct rig *r, struct exchange_head *head, struct exchange_refusal *ret_refusal)
{
    bool wants_body = str_starts(head->path, STR("/body")), wants_time = str_starts(head->path, STR("/wait"));
    if (wants_time && !r->is_told)
        ret_refusal->wants = EXCHANGE_WANTS_TIME;
    else if (wants_body && head->body_is == EXCHANGE_BODY_UNREAD)
        ret_refusal->wants = EXCHANGE_WANTS_BODY;
    r->waits += ret_refusal->wants != EXCHANGE_WANTS_NOTHING;
    if (!ret_refusal->wants && head->body_is == EXCHANGE_BODY_WHOLE)
        head->body = str_of(arena_printf(head->arena, "body=%.*s%.*s", STR_ARG(head->body), STR_ARG(head->body)));
    return ret_refusal->wants;
}

static void on_fields(void *ctx UNUSED, uint64_t id UNUSED, struct arena *arena, struct http_header *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqc(fields[i].value, "secret"))
            fields[i].value = arena_str(arena, STR("masked"));
}

static bool on_request(void *ctx, uint64_t id, struct exchange_head *head, struct exchange_refusal *ret_refusal)
{
    struct rig *r = ctx;
    if (rig_wants(r, head, ret_refusal))
        return false;
    r->requests++;
    assert_true(id > 0);
    buf_printf(&r->log, "%.*s %.*s %.*s\n", STR_ARG(head->method), STR_ARG(head->authority), STR_ARG(head->path));
    for (size_t i = 0; i < head->n_fields; i++)
        buf_printf(&r->log, "%.*s: %.*s\n", STR_ARG(head->fields[i].name), STR_ARG(head->fields[i].value));
    buf_append_char(&r->log, '\n');
    if (r->close_in_request) {
        exchange_close(TAKE_PTR(r->x));
        return true;
    }
    if (str_starts(head->path, STR("/refused"))) {
        ret_refusal->status = r->refuse ? r->refuse : 403;
        ret_refusal->close = r->refuse_closes;
        (void)snprintf(ret_refusal->text, sizeof(ret_refusal->text), "rule 1 says \"no\"");
        return false;
    }
    if (r->edit)
        r->edit(head);
    return true;
}

static void on_answer(void *ctx, uint64_t id, int status)
{
    struct rig *r = ctx;
    r->answers++;
    r->last_status = status;
    r->last_answered = id;
    if (r->close_in_answer)
        exchange_close(TAKE_PTR(r->x));
}

static void on_end(void *ctx, const struct err *err)
{
    struct rig *r = ctx;
    r->ends++;
    r->end_seen = true;
    r->failed = err != NULL;
    if (err)
        r->err = *err;
    if (r->close_in_end)
        exchange_close(TAKE_PTR(r->x));
}

const struct exchange_ops rig_ops = {
    .on_request = on_request, .on_answer = on_answer, .on_end = on_end, .on_fields = on_fields};

/* ---- sockets ---- */

static void unix_pair(int ret[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret), 0);
}

static void tcp_pair(int ret[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    AUTO_CLOSE int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0 && bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 1) == 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(ret[0], (struct sockaddr *)&at, n), 0);
    ret[1] = accept4(listener, (struct sockaddr *)&at, &n, SOCK_CLOEXEC);
    assert_true(ret[1] >= 0 && fd_nonblock(ret[0], true) >= 0 && fd_nonblock(ret[1], true) >= 0);
}

static void start(struct rig *r)
{
    memset(r, 0, sizeof(*r));
    assert_int_equal(uv_loop_init(&r->loop), 0);
    r->fd[CLIENT] = r->fd[UPSTREAM] = -1;
    buf_init(&r->got[CLIENT], GOT_MAX);
    buf_init(&r->got[UPSTREAM], GOT_MAX);
    buf_init(&r->log, GOT_MAX);
}

void rig_open(struct rig *r, exchange_make_fn *make, const char *first, const struct exchange_times *times)
{
    int client[2], upstream[2];
    start(r);
    unix_pair(client);
    unix_pair(upstream);
    r->fd[CLIENT] = client[0];
    r->fd[UPSTREAM] = upstream[0];
    r->x = make(&r->loop, side_tcp_accept(&r->loop, client[1]), side_tcp_accept(&r->loop, upstream[1]),
                first ? str_of(first) : STR_NULL, &rig_ops, r, times);
}

void rig_open_tcp(struct rig *r, exchange_make_fn *make, bool without)
{
    int client[2];
    start(r);
    tcp_pair(client);
    r->fd[CLIENT] = client[0];
    struct side *side = side_tcp_accept(&r->loop, client[1]);
    r->x = make(&r->loop, side, without ? NULL : rig_dial(r), STR_NULL, &rig_ops, r, NULL);
}

void rig_open_fd(struct rig *r, exchange_make_fn *make, int fd)
{
    int upstream[2];
    start(r);
    unix_pair(upstream);
    r->fd[UPSTREAM] = upstream[0];
    r->x = make(&r->loop, side_tcp_accept(&r->loop, fd), side_tcp_accept(&r->loop, upstream[1]), STR_NULL, &rig_ops, r,
                NULL);
}

struct side *rig_dial(struct rig *r)
{
    int upstream[2];
    tcp_pair(upstream);
    r->fd[UPSTREAM] = upstream[0];
    return side_tcp_accept(&r->loop, upstream[1]);
}

void rig_close(struct rig *r)
{
    exchange_close(r->x);
    for (int p = CLIENT; p <= UPSTREAM; p++) {
        rig_leave(r, p);
        buf_fini(&r->got[p]);
    }
    buf_fini(&r->log);
    uint64_t until = uv_hrtime() + 20ULL * 1000000000;
    while (uv_loop_alive(&r->loop) && uv_hrtime() < until)
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    assert_int_equal(uv_loop_close(&r->loop), 0);
}

static bool receive(struct rig *r, enum peer p)
{
    if (r->fd[p] < 0 || r->stop[p] || r->eof[p] || r->error[p])
        return false;
    char *to = buf_reserve(&r->got[p], 256 * 1024);
    assert_non_null(to);
    ssize_t n = recv(r->fd[p], to, 256 * 1024, MSG_DONTWAIT);
    if (n > 0)
        buf_commit(&r->got[p], (size_t)n);
    else if (n == 0)
        r->eof[p] = true;
    else if (errno != EAGAIN)
        r->error[p] = errno;
    return n >= 0;
}

void rig_turn(struct rig *r)
{
    (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    bool got = receive(r, CLIENT);
    got |= receive(r, UPSTREAM);
    if (!got)
        (void)nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
    if (r->x) {
        size_t held = 0;
        const struct exchange_end *ends[] = {&r->x->client, &r->x->upstream};
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
            held += buf_len(&ends[i]->in) + buf_len(&ends[i]->out);
        r->peak = MAX(r->peak, held);
    }
}

void rig_failed(struct rig *r, const char *file, int line, const char *what)
{
    static const char *const names[] = {"client", "upstream"};
    for (int p = CLIENT; p <= UPSTREAM; p++)
        print_message("%s has %zu bytes, eof %d, errno %d: %.*s\n", names[p], buf_len(&r->got[p]), r->eof[p],
                      r->error[p], (int)MIN(buf_len(&r->got[p]), (size_t)1000),
                      buf_len(&r->got[p]) ? buf_data(&r->got[p]) : "");
    print_message("requests %u, answers %u, ends %u %s\n", r->requests, r->answers, r->ends, r->err.msg);
    print_message("it never came to %s\n", what);
    _fail(file, line);
}

void rig_send(struct rig *r, enum peer p, struct str s)
{
    uint64_t until = uv_hrtime() + 20ULL * 1000000000;
    while (s.n) {
        ssize_t n = send(r->fd[p], s.p, s.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(n > 0 || errno == EAGAIN);
        assert_true(uv_hrtime() < until);
        if (n > 0)
            s = str_sub(s, (size_t)n);
        else
            rig_turn(r);
    }
}

void rig_say(struct rig *r, enum peer p, const char *text)
{
    rig_send(r, p, str_of(text));
}

void rig_shut(struct rig *r, enum peer p)
{
    assert_int_equal(shutdown(r->fd[p], SHUT_WR), 0);
}

void rig_leave(struct rig *r, enum peer p)
{
    (void)fd_close(TAKE_FD(r->fd[p]));
}

void rig_expect(struct rig *r, enum peer p, const char *text)
{
    size_t n = strlen(text);
    RIG_UNTIL(r, buf_len(&r->got[p]) >= n || r->eof[p] || r->error[p]);
    if (buf_len(&r->got[p]) < n || memcmp(buf_data(&r->got[p]), text, n) != 0)
        print_message("expected: %s\ngot: %.*s\n", text, STR_ARG(buf_str(&r->got[p])));
    assert_true(buf_len(&r->got[p]) >= n && memcmp(buf_data(&r->got[p]), text, n) == 0);
    buf_consume(&r->got[p], n);
}

static bool has_answer(struct rig *r, size_t *ret_head, size_t *ret_body)
{
    struct str s = buf_str(&r->got[CLIENT]);
    const char *end = s.n ? memmem(s.p, s.n, "\r\n\r\n", 4) : NULL;
    if (!end)
        return false;
    uint64_t length = 0;
    *ret_head = (size_t)(end - s.p) + 4;
    const char *at = memmem(s.p, *ret_head, "content-length: ", 16);
    if (at) {
        struct str value = str_sub(s, (size_t)(at - s.p) + 16);
        assert_int_equal(str_to_u64(str_n(value.p, (size_t)str_find_char(value, '\r')), &length), 0);
    }
    *ret_body = (size_t)length;
    return s.n >= *ret_head + length;
}

void rig_expect_answer(struct rig *r, const char *text, struct buf *ret_body)
{
    size_t head = 0, body = 0;
    RIG_UNTIL(r, has_answer(r, &head, &body) || r->eof[CLIENT] || r->error[CLIENT]);
    bool good = has_answer(r, &head, &body) && str_starts(buf_str(&r->got[CLIENT]), str_of(text));
    if (!good)
        print_message("expected: %s\ngot: %.*s\n", text, STR_ARG(buf_str(&r->got[CLIENT])));
    assert_true(good);
    if (ret_body)
        assert_int_equal(buf_append(ret_body, buf_data(&r->got[CLIENT]) + head, body), 0);
    buf_consume(&r->got[CLIENT], head + body);
}

void rig_expect_end(struct rig *r, enum peer p, bool reset)
{
    RIG_UNTIL(r, r->eof[p] || r->error[p] || buf_len(&r->got[p]));
    if (buf_len(&r->got[p]))
        print_message("not expected: %.*s\n", STR_ARG(buf_str(&r->got[p])));
    assert_int_equal(buf_len(&r->got[p]), 0);
    if (reset)
        assert_int_equal(r->error[p], ECONNRESET);
    else
        assert_true(r->eof[p]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends are nghttp2's own: a client that the test tells what to ask, a server that it tells what to answer. */
#include "egress/h2_internal.h"
#include "egress/test_exchange.h"

#include "base/fd.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STREAMS = 512 };

/* What an end knows of a stream. */
struct seen {
    struct buf head, trailers, body, informed; /* "name: value\n"; informed: 1xx */
    bool has_head, ended, closed;
    uint32_t code; /* of RST_STREAM, or of what closed it */
    /* What it is to send. */
    struct buf out;
    bool out_ends, waiting;
    const char *out_trailer; /* its value */
    bool in_informed;
};

struct half {
    nghttp2_session *session;
    struct seen streams[STREAMS]; /* by (id - 1) / 2 */
    unsigned goaways, pings;
    uint32_t goaway_code;
    bool no_credit; /* nothing is given back to the other end's window */
    bool dead;
};

struct world {
    struct rig r;
    struct half *half[2];
};

static struct seen *seen_of(struct half *h, int32_t id)
{
    assert_true(id > 0 && (id - 1) / 2 < STREAMS);
    return &h->streams[(id - 1) / 2];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *ctx)
{
    (void)session, (void)flags;
    struct seen *s = seen_of(ctx, frame->hd.stream_id);
    if (str_eqc(str_n(name, n_name), ":status"))
        s->in_informed = value[0] == '1';
    struct buf *to = s->in_informed ? &s->informed : s->has_head ? &s->trailers : &s->head;
    return buf_printf(to, "%.*s: %.*s\n", (int)n_name, (const char *)name, (int)n_value, (const char *)value);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    (void)session;
    struct half *h = ctx;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        h->goaways++;
        h->goaway_code = frame->goaway.error_code;
    }
    if (frame->hd.type == NGHTTP2_PING)
        h->pings++;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct seen *s = seen_of(h, frame->hd.stream_id);
    if (frame->hd.type == NGHTTP2_HEADERS) {
        s->has_head |= !s->in_informed;
        s->in_informed = false;
    }
    s->ended |= frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *ctx)
{
    (void)flags;
    struct half *h = ctx;
    if (!h->no_credit)
        assert_int_equal(nghttp2_session_consume(session, id, n), 0);
    return buf_append(&seen_of(h, id)->body, p, n);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    (void)session;
    seen_of(ctx, id)->closed = true;
    seen_of(ctx, id)->code = code;
    return 0;
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *ctx)
{
    (void)ctx;
    struct seen *s = source->ptr;
    size_t n = MIN(room, buf_len(&s->out));
    if (n)
        memcpy(to, buf_data(&s->out), n);
    buf_consume(&s->out, n);
    if (buf_len(&s->out) == 0 && s->out_ends) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->out_trailer) {
            nghttp2_nv nv[] = {h2_nv(STR("grpc-status"), str_of(s->out_trailer)),
                               h2_nv(STR("authorization"), STR("x"))};
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            assert_int_equal(nghttp2_submit_trailer(session, id, nv, ARRAY_SIZE(nv)), 0);
        }
    } else if (n == 0) {
        s->waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

static struct half *half_new(bool is_server)
{
    struct half *h = mem_new(struct half);
    nghttp2_session_callbacks *c;
    nghttp2_option *o;
    assert_int_equal(nghttp2_session_callbacks_new(&c), 0);
    assert_int_equal(nghttp2_option_new(&o), 0);
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_no_http_messaging(o, 1); /* may say what is wrong */
    nghttp2_option_set_max_send_header_block_length(o, 1024 * 1024);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_close);
    if (is_server)
        assert_int_equal(nghttp2_session_server_new2(&h->session, c, h, o), 0);
    else
        assert_int_equal(nghttp2_session_client_new2(&h->session, c, h, o), 0);
    assert_int_equal(nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, NULL, 0), 0);
    for (size_t i = 0; i < STREAMS; i++) {
        struct buf *bufs[] = {&h->streams[i].head, &h->streams[i].trailers, &h->streams[i].body,
                              &h->streams[i].informed, &h->streams[i].out};
        for (size_t k = 0; k < ARRAY_SIZE(bufs); k++)
            buf_init(bufs[k], 64 * 1024 * 1024);
    }
    nghttp2_option_del(o);
    nghttp2_session_callbacks_del(c);
    return h;
}

static void half_free(struct half *h)
{
    nghttp2_session_del(h->session);
    for (size_t i = 0; i < STREAMS; i++) {
        buf_fini(&h->streams[i].head);
        buf_fini(&h->streams[i].trailers);
        buf_fini(&h->streams[i].body);
        buf_fini(&h->streams[i].informed);
        buf_fini(&h->streams[i].out);
    }
    mem_free(h);
}

static void world_open(struct world *w, const struct exchange_times *times)
{
    rig_open(&w->r, h2_exchange_timed, "PRI * HTTP/2.0\r\n", times);
    w->half[CLIENT] = half_new(false);
    w->half[UPSTREAM] = half_new(true);
    /* The preface's first bytes were read by whoever made the exchange. */
    const uint8_t *p;
    ssize_t n = nghttp2_session_mem_send(w->half[CLIENT]->session, &p);
    assert_true(n > 16);
    rig_send(&w->r, CLIENT, str_n(p + 16, (size_t)n - 16));
}

static void world_close(struct world *w)
{
    half_free(w->half[CLIENT]);
    half_free(w->half[UPSTREAM]);
    rig_close(&w->r);
}

static void turn(struct world *w)
{
    rig_turn(&w->r);
    for (int p = CLIENT; p <= UPSTREAM; p++) {
        struct half *h = w->half[p];
        struct buf *got = &w->r.got[p];
        if (buf_len(got) && !h->dead) {
            ssize_t n = nghttp2_session_mem_recv(h->session, (const uint8_t *)buf_data(got), buf_len(got));
            assert_true(n >= 0);
            buf_consume(got, (size_t)n);
        }
        const uint8_t *out;
        ssize_t n;
        while (w->r.fd[p] >= 0 && !w->r.eof[p] && !w->r.error[p] && !h->dead &&
               (n = nghttp2_session_mem_send(h->session, &out)) > 0) {
            ssize_t sent = 0;
            while (sent < n) {
                ssize_t k = send(w->r.fd[p], out + sent, (size_t)(n - sent), MSG_NOSIGNAL | MSG_DONTWAIT);
                if (k > 0) {
                    sent += k;
                } else if (errno == EAGAIN) {
                    rig_turn(&w->r);
                } else {
                    h->dead = true;
                    break;
                }
            }
        }
    }
}

#define UNTIL(w, condition)                                                                                            \
    do {                                                                                                               \
        uint64_t until_ = uv_hrtime() + 20ULL * 1000000000;                                                            \
        while (!(condition)) {                                                                                         \
            turn(w);                                                                                                   \
            if (uv_hrtime() > until_)                                                                                  \
                rig_failed(&(w)->r, __FILE__, __LINE__, #condition);                                                   \
        }                                                                                                              \
    } while (0)

static struct seen *at(struct world *w, enum peer p, int32_t id)
{
    return seen_of(w->half[p], id);
}

static void give(struct world *w, enum peer p, int32_t id, const char *text, bool ends)
{
    struct seen *s = at(w, p, id);
    assert_int_equal(buf_append_cstr(&s->out, text), 0);
    s->out_ends = ends;
    if (s->waiting) {
        s->waiting = false;
        (void)nghttp2_session_resume_data(w->half[p]->session, id);
    }
}

/* fields: "name: value\n" lines, pseudo ones too. */
static size_t nv_of(const char *fields, nghttp2_nv *nv, size_t max)
{
    size_t n = 0;
    for (const char *line = fields; *line;) {
        const char *colon = strstr(line, ": "), *end = strchr(line, '\n');
        assert_true(colon && end && n < max);
        nv[n++] = h2_nv(str_n(line, (size_t)(colon - line)), str_n(colon + 2, (size_t)(end - colon - 2)));
        line = end + 1;
    }
    return n;
}

static int32_t ask(struct world *w, const char *fields, const char *body, bool ends)
{
    nghttp2_nv nv[260];
    size_t n = nv_of(fields, nv, ARRAY_SIZE(nv));
    int32_t id = (int32_t)nghttp2_session_get_next_stream_id(w->half[CLIENT]->session);
    struct seen *s = at(w, CLIENT, id);
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_out};
    if (body)
        assert_int_equal(buf_append_cstr(&s->out, body), 0);
    s->out_ends = ends;
    assert_int_equal(nghttp2_submit_request(w->half[CLIENT]->session, NULL, nv, n, body ? &provider : NULL, NULL), id);
    return id;
}

static void answer(struct world *w, int32_t id, const char *fields, const char *body, bool ends)
{
    nghttp2_nv nv[260];
    size_t n = nv_of(fields, nv, ARRAY_SIZE(nv));
    struct seen *s = at(w, UPSTREAM, id);
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_out};
    if (body)
        assert_int_equal(buf_append_cstr(&s->out, body), 0);
    s->out_ends = ends;
    assert_int_equal(nghttp2_submit_response(w->half[UPSTREAM]->session, id, nv, n, body ? &provider : NULL), 0);
}

static void expect_text(struct buf *b, const char *text)
{
    assert_int_equal(buf_append_char(b, 0), 0);
    assert_string_equal(buf_data(b), text);
    buf_clear(b);
}

#define ASK ":method: GET\n:scheme: https\n:authority: a\n:path: /\n"

/* One plain request goes through: the connection is as good as new. Returns upstream's id. */
static int32_t again(struct world *w)
{
    static const char ok[] = ":status: 200\ncontent-length: 2\n";
    int32_t id = ask(w, ASK, NULL, true), last = 0;
    for (int32_t i = 1; i < 2 * STREAMS; i += 2)
        last = at(w, UPSTREAM, i)->has_head ? i : last;
    last = last ? last + 2 : 1;
    UNTIL(w, at(w, UPSTREAM, last)->ended);
    expect_text(&at(w, UPSTREAM, last)->head, ASK);
    answer(w, last, ok, "ok", true);
    UNTIL(w, at(w, CLIENT, id)->closed);
    expect_text(&at(w, CLIENT, id)->head, ok);
    expect_text(&at(w, CLIENT, id)->body, "ok");
    assert_int_equal(at(w, CLIENT, id)->code, 0);
    return last;
}

static void test_requests(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    int32_t id = ask(&w,
                     ":method: POST\n:scheme: https\n:authority: a:443\n:path: /x?y\nhost: A:443\ncontent-length: 5\n"
                     "te: trailers\nauthorization: mine\ncookie: a=b\ncookie: c=d\nproxy-authorization: z\n",
                     "hello", true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->ended);
    expect_text(&at(&w, UPSTREAM, 1)->head,
                ":method: POST\n:scheme: https\n:authority: a:443\n:path: /x?y\nte: trailers\nauthorization: mine\n"
                "cookie: a=b\ncookie: c=d\ncontent-length: 5\n");
    expect_text(&w.r.log, "POST a:443 /x?y\nte: trailers\nauthorization: mine\ncookie: a=b\ncookie: c=d\n\n");
    expect_text(&at(&w, UPSTREAM, 1)->body, "hello");
    nghttp2_nv early[] = {h2_nv(STR(":status"), STR("103")), h2_nv(STR("link"), STR("</x>"))};
    assert_int_equal(nghttp2_submit_headers(w.half[UPSTREAM]->session, 0, 1, NULL, early, 2, NULL), 0);
    UNTIL(&w, buf_len(&at(&w, CLIENT, id)->informed));
    expect_text(&at(&w, CLIENT, id)->informed, ":status: 103\nlink: </x>\n");
    assert_int_equal(w.r.answers, 0);
    at(&w, UPSTREAM, 1)->out_trailer = "0";
    answer(&w, 1, ":status: 404\nx: y\n", "", false);
    UNTIL(&w, at(&w, CLIENT, id)->has_head); /* before any of the body */
    assert_int_equal(w.r.last_status, 404);
    give(&w, UPSTREAM, 1, "first", false);
    UNTIL(&w, buf_len(&at(&w, CLIENT, id)->body) == 5);
    give(&w, UPSTREAM, 1, "last", true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    expect_text(&at(&w, CLIENT, id)->head, ":status: 404\nx: y\n");
    expect_text(&at(&w, CLIENT, id)->body, "firstlast");
    expect_text(&at(&w, CLIENT, id)->trailers, "grpc-status: 0\nauthorization: x\n");
    for (int i = 0; i < 100; i++)
        (void)again(&w);
    assert_int_equal(w.r.requests, 101);
    assert_int_equal(w.r.answers, 101);
    world_close(&w);
}

static void test_request_trailers(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    int32_t id = ask(&w, ASK, "hi", false);
    at(&w, CLIENT, id)->out_trailer = "7";
    give(&w, CLIENT, id, "", true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->ended);
    expect_text(&at(&w, UPSTREAM, 1)->trailers, "grpc-status: 7\n"); /* and no authorization that nobody judged */
    answer(&w, 1, ":status: 200\n", NULL, true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_true(at(&w, CLIENT, id)->ended);
    world_close(&w);
}

static void inject(struct exchange_head *h)
{
    exchange_set(h, STR("authorization"), STR("Bearer real"));
}

static void inject_pseudo(struct exchange_head *h)
{
    exchange_set(h, STR(":path"), STR("/other"));
}

static void test_edits(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    w.r.edit = inject;
    (void)ask(&w, ASK "authorization: a\nauthorization: b\n", NULL, true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->ended);
    expect_text(&at(&w, UPSTREAM, 1)->head, ASK "authorization: Bearer real\n");
    w.r.edit = inject_pseudo;
    int32_t id = ask(&w, ASK, NULL, true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&at(&w, CLIENT, id)->head), STR(":status: 500\n")));
    w.r.edit = NULL;
    (void)again(&w);
    world_close(&w);
}

static void test_refusals(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    static const struct {
        const char *fields, *status;
    } cases[] = {
        {":method: GET\n:scheme: https\n:authority: a\n:path: /refused\n", ":status: 403\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /\nhost: b\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a b\n:path: /\n", NULL},
        {":method: GET\n:scheme: https\n:authority: x@a\n:path: /\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a%00b\n:path: /\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /\nhost: a\nhost: b\n", NULL},
        {":method: GET\n:scheme: ftp\n:authority: a\n:path: /\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /a b\n", NULL},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /a#b\n", ":status: 400\n"},
        {":method: GET\n:scheme: https\n:authority: a\n:path: http://b/\n", NULL},
        {":method: GET\n:scheme: https\n:path: /\n", NULL},
        {":method: GET\n:authority: a\n:path: /\n", NULL},
        {":method: GET\n:scheme: https\n:authority: a\n:path: /\n:path: /b\n", NULL},
        {":method: GET\n:scheme: https\n:authority: a\nx: y\n:path: /b\n", NULL},
        {":method: TRACE\n:scheme: https\n:authority: a\n:path: /\n", ":status: 405\n"},
        {":method: connect\n:scheme: https\n:authority: a\n:path: /\n", ":status: 405\n"},
        {":method: CONNECT\n:authority: a:443\n", ":status: 405\n"},
        {":method: CONNECT\n:protocol: websocket\n:scheme: https\n:authority: a\n:path: /\n", NULL},
        {ASK "connection: authorization\n", NULL},
        {ASK "transfer-encoding: chunked\n", NULL},
        {ASK "upgrade: websocket\n", NULL},
        {ASK "te: gzip\n", NULL},
        {ASK "bad name: x\n", NULL},
        {ASK "x: a\rb\n", NULL},
        {ASK "content-length: +5\n", NULL},
        {ASK "content-length: 5\ncontent-length: 6\n", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int32_t id = ask(&w, cases[i].fields, NULL, true);
        UNTIL(&w, at(&w, CLIENT, id)->closed);
        struct str head = buf_str(&at(&w, CLIENT, id)->head);
        bool good =
            cases[i].status ? str_starts(head, str_of(cases[i].status)) : head.n == 0 && at(&w, CLIENT, id)->code;
        if (!good)
            print_message("%s -> %.*s, code %u\n", cases[i].fields, STR_ARG(head), at(&w, CLIENT, id)->code);
        assert_true(good);
        assert_false(at(&w, UPSTREAM, 1)->has_head);
    }
    assert_int_equal(w.r.requests, 1);
    assert_int_equal(w.r.answers, 0);
    assert_int_equal(again(&w), 1);
    w.r.refuse = 421;
    int32_t id = ask(&w, ":method: POST\n:scheme: https\n:authority: b\n:path: /refused\n", "part", false);
    UNTIL(&w, at(&w, CLIENT, id)->closed); /* nobody waits for the rest */
    assert_int_equal(at(&w, CLIENT, id)->code, NGHTTP2_NO_ERROR);
    assert_true(at(&w, CLIENT, id)->ended);
    expect_text(&at(&w, CLIENT, id)->body,
                "{\"error\":{\"code\":\"misdirected\",\"message\":\"rule 1 says \\\"no\\\"\"}}\n");
    (void)again(&w);
    w.r.refuse_closes = true;
    id = ask(&w, ":method: HEAD\n:scheme: https\n:authority: b\n:path: /refused\n", NULL, true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_int_equal(buf_len(&at(&w, CLIENT, id)->body), 0);
    UNTIL(&w, w.r.end_seen);
    assert_false(w.r.failed);
    UNTIL(&w, w.half[CLIENT]->goaways == 1 && w.r.eof[CLIENT]);
    world_close(&w);
}

static void test_large_heads(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    AUTO_BUF struct buf fields = BUF_INIT(1024 * 1024);
    buf_append_cstr(&fields, ASK);
    for (int i = 0; i < EXCHANGE_FIELDS_MAX + 1; i++)
        buf_append_cstr(&fields, "x: y\n");
    buf_append_char(&fields, 0);
    int32_t id = ask(&w, buf_data(&fields), NULL, true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&at(&w, CLIENT, id)->head), STR(":status: 431\n")));
    buf_clear(&fields);
    buf_append_cstr(&fields, ASK);
    for (int k = 0; k < 5; k++) { /* too much in all, none of them alone */
        buf_append_cstr(&fields, "x: ");
        for (int i = 0; i < 13200; i++)
            buf_append_char(&fields, (char)('a' + (i + k) % 26));
        buf_append_char(&fields, '\n');
    }
    buf_append_char(&fields, 0);
    id = ask(&w, buf_data(&fields), NULL, true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&at(&w, CLIENT, id)->head), STR(":status: 431\n")));
    (void)again(&w);
    world_close(&w);
}

static void test_many_early_heads(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    int32_t id = ask(&w, ASK, NULL, true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->ended);
    nghttp2_nv early[] = {h2_nv(STR(":status"), STR("103"))};
    for (int i = 0; i < 2 * H2_INFORMED_MAX; i++)
        assert_int_equal(nghttp2_submit_headers(w.half[UPSTREAM]->session, 0, 1, NULL, early, 1, NULL), 0);
    UNTIL(&w, at(&w, CLIENT, id)->closed && at(&w, UPSTREAM, 1)->closed);
    assert_true(str_starts(buf_str(&at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    (void)again(&w);
    world_close(&w);
}

static void test_resets(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    int32_t id = ask(&w, ASK, "part", false); /* by the client */
    UNTIL(&w, buf_len(&at(&w, UPSTREAM, 1)->body) == 4);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[CLIENT]->session, 0, id, NGHTTP2_CANCEL), 0);
    UNTIL(&w, at(&w, UPSTREAM, 1)->closed);
    assert_int_equal(at(&w, UPSTREAM, 1)->code, NGHTTP2_CANCEL);
    UNTIL(&w, w.r.answers == 1);
    assert_int_equal(w.r.last_status, 0);

    id = ask(&w, ASK, NULL, true); /* by upstream, with nothing said */
    UNTIL(&w, at(&w, UPSTREAM, 3)->ended);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[UPSTREAM]->session, 0, 3, NGHTTP2_REFUSED_STREAM), 0);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_int_equal(at(&w, CLIENT, id)->code, NGHTTP2_REFUSED_STREAM);
    assert_int_equal(w.r.answers, 2);

    id = ask(&w, ASK, NULL, true); /* within an answer */
    UNTIL(&w, at(&w, UPSTREAM, 5)->ended);
    answer(&w, 5, ":status: 200\n", "part", false);
    UNTIL(&w, buf_len(&at(&w, CLIENT, id)->body) == 4);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[UPSTREAM]->session, 0, 5, NGHTTP2_INTERNAL_ERROR), 0);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_int_equal(at(&w, CLIENT, id)->code, NGHTTP2_INTERNAL_ERROR);
    assert_false(at(&w, CLIENT, id)->ended);
    assert_int_equal(w.r.answers, 3);

    id = ask(&w, ASK, "part", false); /* answered and closed before all was sent */
    UNTIL(&w, buf_len(&at(&w, UPSTREAM, 7)->body) == 4);
    answer(&w, 7, ":status: 413\n", "no", true);
    UNTIL(&w, at(&w, CLIENT, id)->ended);
    assert_int_equal(nghttp2_submit_rst_stream(w.half[UPSTREAM]->session, 0, 7, NGHTTP2_NO_ERROR), 0);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_int_equal(at(&w, CLIENT, id)->code, NGHTTP2_NO_ERROR);
    (void)again(&w);
    world_close(&w);
}

static void test_upstream_leaves(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL); /* GOAWAY: what is begun is finished */
    int32_t id = ask(&w, ASK, NULL, true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->ended);
    assert_int_equal(nghttp2_submit_goaway(w.half[UPSTREAM]->session, 0, 1, 0, NULL, 0), 0);
    UNTIL(&w, w.half[CLIENT]->goaways == 1);
    answer(&w, 1, ":status: 200\n", "ok", true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    expect_text(&at(&w, CLIENT, id)->body, "ok");
    UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    assert_false(w.r.failed);
    world_close(&w);

    world_open(&w, NULL); /* lost: before and within an answer */
    id = ask(&w, ASK, NULL, true);
    int32_t other = ask(&w, ASK, NULL, true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->ended && at(&w, UPSTREAM, 3)->ended);
    answer(&w, 3, ":status: 200\n", "part", false);
    UNTIL(&w, buf_len(&at(&w, CLIENT, other)->body) == 4);
    rig_leave(&w.r, UPSTREAM);
    UNTIL(&w, at(&w, CLIENT, id)->closed && at(&w, CLIENT, other)->closed);
    assert_true(str_starts(buf_str(&at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    assert_int_equal(at(&w, CLIENT, other)->code, NGHTTP2_INTERNAL_ERROR);
    assert_false(at(&w, CLIENT, other)->ended);
    UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    assert_int_equal(w.r.answers, 2);
    world_close(&w);

    world_open(&w, NULL); /* before the first request */
    rig_leave(&w.r, UPSTREAM);
    turn(&w);
    id = ask(&w, ASK, NULL, true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    world_close(&w);

    world_open(&w, NULL); /* not HTTP/2 at all */
    w.half[UPSTREAM]->dead = true;
    id = ask(&w, ASK, NULL, true);
    rig_say(&w.r, UPSTREAM, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    assert_true(str_starts(buf_str(&at(&w, CLIENT, id)->head), STR(":status: 502\n")));
    UNTIL(&w, w.r.end_seen && w.r.eof[CLIENT]);
    world_close(&w);
}

static void test_client_leaves(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    (void)ask(&w, ASK, "part", false);
    UNTIL(&w, buf_len(&at(&w, UPSTREAM, 1)->body) == 4);
    rig_leave(&w.r, CLIENT);
    UNTIL(&w, w.r.end_seen && (w.r.eof[UPSTREAM] || w.r.error[UPSTREAM]));
    assert_false(at(&w, UPSTREAM, 1)->ended);
    assert_int_equal(w.r.answers, 1);
    assert_int_equal(w.r.last_status, 0);
    world_close(&w);
}

/* A reader that sleeps makes the sender wait, and what is kept meanwhile is bounded; other streams go on. */
static void sleeping_reader(enum peer from)
{
    enum { TOTAL = 8 * 1024 * 1024 };
    enum peer to = from == CLIENT ? UPSTREAM : CLIENT;
    struct world w;
    world_open(&w, NULL);
    char *body = mem_alloc(TOTAL + 1);
    for (size_t i = 0; i < TOTAL; i++)
        body[i] = (char)('a' + i % 23);
    body[TOTAL] = 0;
    w.half[to]->no_credit = true;
    int32_t id = ask(&w, ASK, from == CLIENT ? body : NULL, true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->has_head);
    if (from == UPSTREAM)
        answer(&w, 1, ":status: 200\n", body, true);
    struct seen *s = at(&w, to, from == CLIENT ? 1 : id);
    UNTIL(&w, buf_len(&s->body) == 65535); /* the reader's window */
    for (int i = 0; i < 300; i++)
        turn(&w);
    assert_int_equal(buf_len(&s->body), 65535);
    size_t left = buf_len(&at(&w, from, from == CLIENT ? id : 1)->out);
    assert_true(left > TOTAL - 65535 - 2 * H2_UPSTREAM_WINDOW);
    w.half[to]->no_credit = false;
    assert_int_equal(nghttp2_session_consume(w.half[to]->session, from == CLIENT ? 1 : id, 65535), 0);
    UNTIL(&w, s->ended);
    assert_int_equal(buf_len(&s->body), TOTAL);
    assert_memory_equal(buf_data(&s->body), body, TOTAL);
    if (from == CLIENT)
        answer(&w, 1, ":status: 200\n", NULL, true);
    UNTIL(&w, at(&w, CLIENT, id)->closed);
    (void)again(&w);
    mem_free(body);
    world_close(&w);
}

static void test_flow_control(void **state)
{
    (void)state;
    sleeping_reader(CLIENT);
    sleeping_reader(UPSTREAM);
}

static void test_many_streams(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    (void)again(&w); /* the limit is known now */
    int32_t ids[150];
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        ids[i] = ask(&w, ASK, "x", true);
    UNTIL(&w, at(&w, UPSTREAM, 3 + 2 * (EXCHANGE_STREAMS_MAX - 1))->ended);
    for (int i = 0; i < 50; i++)
        turn(&w);
    assert_int_equal(w.r.requests, 1 + EXCHANGE_STREAMS_MAX);
    for (int32_t i = 0; i < (int32_t)ARRAY_SIZE(ids); i++) {
        UNTIL(&w, at(&w, UPSTREAM, 3 + 2 * i)->ended);
        answer(&w, 3 + 2 * i, ":status: 200\n", "y", true);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        UNTIL(&w, at(&w, CLIENT, ids[i])->closed);
        expect_text(&at(&w, CLIENT, ids[i])->body, "y");
    }
    world_close(&w);
}

/* Frames that cost and bring nothing: the connection is ended, whatever is said. */
static void flood(struct str frame, size_t times)
{
    struct world w;
    world_open(&w, NULL);
    (void)again(&w);
    assert_int_equal(ask(&w, ASK, "part", false), 3); /* one that DATA may belong to */
    UNTIL(&w, buf_len(&at(&w, UPSTREAM, 3)->body) == 4);
    for (size_t i = 0; i < times && !w.r.end_seen && !w.r.error[CLIENT] && !w.r.eof[CLIENT]; i++) {
        ssize_t n;
        while ((n = send(w.r.fd[CLIENT], frame.p, frame.n, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EAGAIN &&
               !w.r.end_seen)
            rig_turn(&w.r);
        if (n != (ssize_t)frame.n)
            break;
    }
    UNTIL(&w, w.r.end_seen);
    world_close(&w);
}

static void test_floods(void **state)
{
    (void)state;
    static const char ping[] = "\0\0\x08\x06\0\0\0\0\0abcdefgh", settings[] = "\0\0\0\x04\0\0\0\0\0",
                      priority[] = "\0\0\x05\x02\0\0\0\0\x09\0\0\0\0\0", data[] = "\0\0\0\0\0\0\0\0\x03";
    flood(str_n(ping, sizeof(ping) - 1), 100000);
    flood(str_n(settings, sizeof(settings) - 1), 100000);
    flood(str_n(priority, sizeof(priority) - 1), 100000);
    flood(str_n(data, sizeof(data) - 1), 100000);
    /* HEADERS without end, and CONTINUATION for ever. */
    static const char headers[] = "\0\0\x01\x01\0\0\0\0\x03\x82", more[] = "\0\0\x01\x09\0\0\0\0\x03\x84";
    struct world w;
    world_open(&w, NULL);
    (void)again(&w);
    rig_send(&w.r, CLIENT, str_n(headers, sizeof(headers) - 1));
    for (int i = 0; i < 1000 && send(w.r.fd[CLIENT], more, sizeof(more) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0; i++)
        rig_turn(&w.r);
    UNTIL(&w, w.r.end_seen);
    world_close(&w);
}

static void test_rapid_reset(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, NULL);
    (void)again(&w);
    /* GET / of a, by the static table, then RST_STREAM. */
    for (uint32_t id = 3; id < 100000 && !w.r.end_seen; id += 2) {
        char two[9 + 7 + 9 + 4] = {0, 0, 6, 1, 5, 0, 0, 0, 0, '\x82', '\x87', '\x84', 0x01, 0x01, 'a'};
        two[7] = (char)(id >> 8), two[8] = (char)id;
        char *reset = two + 15;
        reset[2] = 4, reset[3] = 3, reset[7] = (char)(id >> 8), reset[8] = (char)id, reset[12] = 8;
        if (id > 65535)
            break;
        while (send(w.r.fd[CLIENT], two, 15 + 13, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN && !w.r.end_seen)
            turn(&w);
    }
    UNTIL(&w, w.r.end_seen);
    assert_true(w.r.requests < 3000);
    assert_int_equal(w.r.requests, w.r.answers);
    w.half[UPSTREAM]->dead = w.half[CLIENT]->dead = true;
    world_close(&w);
}

static void test_time_limits(void **state)
{
    (void)state;
    static const struct exchange_times head = {20, 100000, 100000}, idle = {100000, 20, 100000},
                                       stall = {100000, 100000, 20};
    struct rig r;
    rig_open(&r, h2_exchange_timed, "PRI * HTTP/2.0\r\n", &head); /* and no more of the preface */
    RIG_UNTIL(&r, r.end_seen);
    rig_close(&r);

    struct world w;
    world_open(&w, &head);
    (void)again(&w);
    static const char headers[] = "\0\0\x20\x01\x05\0\0\0\x03\x82";
    rig_send(&w.r, CLIENT, str_n(headers, sizeof(headers) - 1));
    UNTIL(&w, w.r.end_seen);
    world_close(&w);

    world_open(&w, &idle);
    (void)again(&w);
    UNTIL(&w, w.r.end_seen && w.half[CLIENT]->goaways);
    assert_false(w.r.failed);
    world_close(&w);

    world_open(&w, &stall);
    (void)ask(&w, ASK, NULL, true);
    UNTIL(&w, w.r.end_seen);
    assert_true(w.r.failed);
    assert_int_equal(w.r.answers, 1);
    world_close(&w);
}

static void test_closed_from_within(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct world w;
        world_open(&w, NULL);
        w.r.close_in_request = i == 0;
        w.r.close_in_answer = i == 1;
        w.r.close_in_end = i == 2;
        (void)ask(&w, ASK, NULL, true);
        (void)ask(&w, ASK, NULL, true);
        if (i > 0) {
            UNTIL(&w, at(&w, UPSTREAM, 1)->ended);
            answer(&w, 1, ":status: 200\n", NULL, true);
        }
        if (i == 2) {
            UNTIL(&w, w.r.answers == 1);
            rig_leave(&w.r, CLIENT);
        }
        UNTIL(&w, !w.r.x);
        world_close(&w);
    }
}

/* ---- a real client ---- */

/* Runs curl with these arguments, its output to *ret_out. False: there is none. */
static bool start_curl(const char *const *arguments, pid_t *ret_pid, int *ret_out)
{
    int out[2];
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO), 0);
    int r = posix_spawnp(ret_pid, "curl", &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)fd_close(out[1]);
    *ret_out = out[0];
    if (r)
        (void)fd_close(out[0]);
    return r == 0;
}

static bool curl_speaks_h2(void)
{
    static const char *const arguments[] = {"curl", "-q", "-V", NULL};
    AUTO_BUF struct buf text = BUF_INIT(65536);
    pid_t pid;
    int out;
    if (!start_curl(arguments, &pid, &out))
        return false;
    assert_int_equal(fd_read_all(out, &text), 0);
    (void)fd_close(out);
    (void)waitpid(pid, NULL, 0);
    return memmem(buf_data(&text), buf_len(&text), " HTTP2 ", 7) != NULL;
}

static void test_curl(void **state)
{
    (void)state;
    if (!curl_speaks_h2()) {
        print_message("no curl with HTTP/2\n");
        skip();
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), out;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &n), 0);
    char authority[32], url[64];
    (void)snprintf(authority, sizeof(authority), "127.0.0.1:%u", ntohs(address.sin_port));
    (void)snprintf(url, sizeof(url), "http://%s/x?y", authority);
    const char *const arguments[] = {
        "curl", "-qsSi",   "--noproxy",     "*",     "-m", "20", "--http2-prior-knowledge", "-H", "user-agent:",
        "-H",   "accept:", "--data-binary", "hello", url,  NULL};
    pid_t pid;
    assert_true(start_curl(arguments, &pid, &out));
    struct world w;
    rig_open_fd(&w.r, h2_exchange_timed, accept4(listener, (struct sockaddr *)&address, &n, SOCK_CLOEXEC));
    w.half[CLIENT] = half_new(false);
    w.half[UPSTREAM] = half_new(true);
    UNTIL(&w, at(&w, UPSTREAM, 1)->ended);
    expect_text(&at(&w, UPSTREAM, 1)->body, "hello");
    answer(&w, 1, ":status: 201\nx: y\n", "there", true);
    UNTIL(&w, w.r.end_seen);
    AUTO_BUF struct buf text = BUF_INIT(65536);
    int status;
    assert_int_equal(fd_read_all(out, &text), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    expect_text(&text, "HTTP/2 201 \r\nx: y\r\n\r\nthere");
    AUTO_FREE char *log = mem_printf("POST %s /x?y\ncontent-type: application/x-www-form-urlencoded\n\n", authority);
    expect_text(&w.r.log, log);
    (void)fd_close(out);
    (void)fd_close(listener);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_request_trailers),
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_large_heads),
        cmocka_unit_test(test_resets),
        cmocka_unit_test(test_many_early_heads),
        cmocka_unit_test(test_upstream_leaves),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_flow_control),
        cmocka_unit_test(test_many_streams),
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_rapid_reset),
        cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_closed_from_within),
        cmocka_unit_test(test_curl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

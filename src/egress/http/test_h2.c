/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/http/test_h2.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

static struct seen *seen_of(struct half *h, int32_t id)
{
    assert_true(id > 0 && (id - 1) / 2 < ENDS_STREAMS);
    return &h->streams[(id - 1) / 2];
}

static int on_header(nghttp2_session *session UNUSED, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags UNUSED, void *ctx)
{
    struct seen *s = seen_of(ctx, frame->hd.stream_id);
    if (str_eqc(str_n(name, n_name), ":status"))
        s->in_informed = value[0] == '1';
    struct buf *to = s->in_informed ? &s->informed : s->has_head ? &s->trailers : &s->head;
    return buf_printf(to, "%.*s: %.*s\n", (int)n_name, (const char *)name, (int)n_value, (const char *)value);
}

static int on_frame(nghttp2_session *session UNUSED, const nghttp2_frame *frame, void *ctx)
{
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

static int on_data(nghttp2_session *session, uint8_t flags UNUSED, int32_t id, const uint8_t *p, size_t n, void *ctx)
{
    struct half *h = ctx;
    if (!h->no_credit)
        assert_int_equal(nghttp2_session_consume(session, id, n), 0);
    return buf_append(&seen_of(h, id)->body, p, n);
}

static int on_close(nghttp2_session *session UNUSED, int32_t id, uint32_t code, void *ctx)
{
    seen_of(ctx, id)->closed = true;
    seen_of(ctx, id)->code = code;
    return 0;
}

static ssize_t read_out(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *ctx UNUSED)
{
    struct seen *s = source->ptr;
    size_t n = MIN(room, buf_len(&s->out));
    if (n)
        memcpy(to, buf_data(&s->out), n);
    buf_consume(&s->out, n);
    if (buf_len(&s->out) == 0 && s->out_ends) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->out_trailer) {
            nghttp2_nv nv[] = {h2_nv(STR("grpc-status"), str_of(s->out_trailer)), h2_nv(STR("authorization"), STR("x")),
                               h2_nv(STR("x_forwarded_host"), STR("b"))};
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            assert_int_equal(nghttp2_submit_trailer(session, id, nv, ARRAY_SIZE(nv)), 0);
        }
    } else if (n == 0) {
        s->waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

struct half *ends_half(bool is_server)
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
    for (size_t i = 0; i < ENDS_STREAMS; i++) {
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
    for (size_t i = 0; i < ENDS_STREAMS; i++) {
        buf_fini(&h->streams[i].head);
        buf_fini(&h->streams[i].trailers);
        buf_fini(&h->streams[i].body);
        buf_fini(&h->streams[i].informed);
        buf_fini(&h->streams[i].out);
    }
    mem_free(h);
}

void ends_open(struct ends *w, const struct exchange_times *times)
{
    rig_open(&w->r, h2_exchange_timed, "PRI * HTTP/2.0\r\n", times);
    w->half[CLIENT] = ends_half(false);
    w->half[UPSTREAM] = ends_half(true);
    /* The preface's first bytes were read by whoever made the exchange. */
    const uint8_t *p;
    ssize_t n = nghttp2_session_mem_send(w->half[CLIENT]->session, &p);
    assert_true(n > 16);
    rig_send(&w->r, CLIENT, str_n(p + 16, (size_t)n - 16));
}

void ends_open_tcp(struct ends *w)
{
    rig_open_tcp(&w->r, h2_exchange_timed, false);
    w->half[CLIENT] = ends_half(false);
    w->half[UPSTREAM] = ends_half(true);
}

void ends_close(struct ends *w)
{
    half_free(w->half[CLIENT]);
    half_free(w->half[UPSTREAM]);
    rig_close(&w->r);
}

void ends_turn(struct ends *w)
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

struct seen *ends_at(struct ends *w, enum peer p, int32_t id)
{
    return seen_of(w->half[p], id);
}

void ends_give(struct ends *w, enum peer p, int32_t id, const char *text, bool ends)
{
    struct seen *s = ends_at(w, p, id);
    assert_int_equal(buf_append_cstr(&s->out, text), 0);
    s->out_ends = ends;
    if (s->waiting) {
        s->waiting = false;
        (void)nghttp2_session_resume_data(w->half[p]->session, id);
    }
}

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

int32_t ends_ask(struct ends *w, const char *fields, const char *body, bool ends)
{
    nghttp2_nv nv[260];
    size_t n = nv_of(fields, nv, ARRAY_SIZE(nv));
    int32_t id = (int32_t)nghttp2_session_get_next_stream_id(w->half[CLIENT]->session);
    struct seen *s = ends_at(w, CLIENT, id);
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_out};
    if (body)
        assert_int_equal(buf_append_cstr(&s->out, body), 0);
    s->out_ends = ends;
    assert_int_equal(nghttp2_submit_request(w->half[CLIENT]->session, NULL, nv, n, body ? &provider : NULL, NULL), id);
    return id;
}

void ends_answer(struct ends *w, int32_t id, const char *fields, const char *body, bool ends)
{
    nghttp2_nv nv[260];
    size_t n = nv_of(fields, nv, ARRAY_SIZE(nv));
    struct seen *s = ends_at(w, UPSTREAM, id);
    nghttp2_data_provider provider = {.source.ptr = s, .read_callback = read_out};
    if (body)
        assert_int_equal(buf_append_cstr(&s->out, body), 0);
    s->out_ends = ends;
    assert_int_equal(nghttp2_submit_response(w->half[UPSTREAM]->session, id, nv, n, body ? &provider : NULL), 0);
}

void ends_expect(struct buf *b, const char *text)
{
    assert_int_equal(buf_append_char(b, 0), 0);
    assert_string_equal(buf_data(b), text);
    buf_clear(b);
}

int32_t ends_again(struct ends *w)
{
    static const char ok[] = ":status: 200\ncontent-length: 2\n";
    int32_t id = ends_ask(w, ENDS_ASK, NULL, true), last = 0;
    for (int32_t i = 1; i < 2 * ENDS_STREAMS; i += 2)
        last = ends_at(w, UPSTREAM, i)->has_head ? i : last;
    last = last ? last + 2 : 1;
    ENDS_UNTIL(w, ends_at(w, UPSTREAM, last)->ended);
    ends_expect(&ends_at(w, UPSTREAM, last)->head, ENDS_ASK);
    ends_answer(w, last, ok, "ok", true);
    ENDS_UNTIL(w, ends_at(w, CLIENT, id)->closed);
    ends_expect(&ends_at(w, CLIENT, id)->head, ok);
    ends_expect(&ends_at(w, CLIENT, id)->body, "ok");
    assert_int_equal(ends_at(w, CLIENT, id)->code, 0);
    return last;
}

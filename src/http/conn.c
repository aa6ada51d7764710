/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of one connection. Theory of operation: conn.h. */
#include "http/conn.h"
#include "base/fd.h"
#include "base/mem.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void conn_open(struct http_server *s, struct listener *l, int fd)
{
    struct conn *c = mem_new(struct conn);
    c->server = s;
    c->listener = l;
    c->fd = fd;
    c->timed_class = TIMED_NONE;
    buf_init(&c->in, READ_BODY);
    buf_init(&c->out, SIZE_MAX / 2); /* bounded by write_max where it is filled */
    list_init(&c->pending);
    list_init(&c->timed);
    if (l->tls && conn_tls_open(c, l->tls) < 0) {
        (void)fd_close(fd);
        mem_free(c);
        return;
    }
    c->state = l->tls ? CONN_HANDSHAKE : CONN_HEAD;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        if (c->tls)
            conn_tls_close(c);
        (void)fd_close(fd);
        mem_free(c);
        return;
    }
    list_append(&s->conns, &c->node);
    s->n_conns++;
    struct conn *oldest = LIST_FIRST(struct conn, &s->timed[TIMED_HANDSHAKE], timed);
    if (c->tls && s->n_handshakes++ >= s->limits.handshakes && oldest)
        conn_drop(oldest);
}

static void conn_head_costs(struct conn *c, size_t n)
{
    c->server->heads += n - c->head_cost;
    c->head_cost = (uint32_t)n;
}

static void conn_head_waits(struct conn *c)
{
    size_t part = conn_tls_has_part(c) ? CONN_TLS_RECORD : 0;
    conn_head_costs(c, part + (c->req ? sizeof(*c->req) + c->req->fields.text.cap : 0));
}

void conn_head_over(struct conn *c)
{
    conn_head_costs(c, 0);
}

static void close_now(struct conn *c)
{
    if (c->state == CONN_DEAD)
        return;
    if (c->req) {
        /* Only a head that never became complete: no handler knows of it. */
        assert(c->state == CONN_HEAD);
        request_release(TAKE_PTR(c->req));
    }
    c->server->n_handshakes -= c->state == CONN_HANDSHAKE;
    conn_head_over(c);
    if (c->tls) {
        if (!c->gone)
            (void)conn_tls_notify(c);
        conn_tls_close(c);
    }
    (void)fd_close(TAKE_FD(c->fd));
    buf_fini(&c->in);
    buf_fini(&c->out);
    c->cur = STR_NULL;
    c->state = CONN_DEAD;
    server_conn_gone(c->server, c);
}

/* Our side of the connection: 1 it is shut, 0 it will be once there is room to say so, -1 it can't be. */
static int conn_shut_down(struct conn *c)
{
    c->notify_due = c->tls && !conn_tls_notify(c);
    if (c->notify_due)
        return 0;
    return shutdown(c->fd, SHUT_WR) < 0 ? -1 : 1;
}

/* Closing while the client still sends would make the kernel reset the connection and the client lose the answer. */
static void linger(struct conn *c)
{
    if (c->eof || c->gone || conn_shut_down(c) < 0) {
        close_now(c);
        return;
    }
    c->state = CONN_LINGER;
    c->skipped = 0;
    c->again = true;
}

/* One read into the shared buffer when the input is used up. False when there is nothing to be had now. */
static bool conn_fill(struct conn *c, size_t want)
{
    assert(c->cur.n == 0);
    if (!c->can_read || c->eof)
        return false;
    if (c->reads_left == 0) {
        server_schedule(c->server, c);
        return false;
    }
    c->reads_left--;
    buf_clear(&c->in);
    ssize_t n;
    bool through_tls = c->tls && c->state != CONN_LINGER;
    if (through_tls)
        n = conn_tls_read(c, c->server->read_buf, want);
    else
        do
            n = read(c->fd, c->server->read_buf, want);
        while (n < 0 && errno == EINTR);
    if (n > 0) {
        c->cur = str_n(c->server->read_buf, (size_t)n);
        /* A short read emptied the socket; the next byte is a new edge. A FIN that is announced already is not. */
        if ((size_t)n < want && !c->half_closed && !through_tls)
            c->can_read = false;
        return true;
    }
    if (n < 0 && errno == EAGAIN && through_tls)
        return false;
    c->can_read = false;
    if (n == 0)
        c->eof = true;
    else if (errno == EAGAIN)
        return false;
    else
        c->gone = true;
    return true;
}

static void conn_body_error(struct http_request *req, int error)
{
    if (req->body_over || req->reader == READER_NONE)
        return;
    req->body_over = true;
    if (req->reader == READER_WHOLE)
        req->whole_fn(req, error, STR_NULL, req->reader_ctx);
    else if (req->ops->on_error)
        req->ops->on_error(req, error, req->reader_ctx);
}

static void request_finish(struct conn *c)
{
    struct http_request *req = c->req;
    if (req->on_close)
        req->on_close(req, req->close_ctx);
    c->req = NULL;
    request_release(req);
    c->timed_class = TIMED_NONE; /* the next head has its own time */
    list_remove(&c->timed);
}

static void request_cut(struct conn *c)
{
    struct http_request *req = c->req;
    bool aborted = req->aborted;
    c->gone = true;
    if (!aborted && !req->ended)
        conn_body_error(req, -EPIPE);
    /*
     * Where only the end of the connection would end the message, or there is no message, a FIN would look like
     * success.
     */
    if ((c->raw || req->until_close) && !c->listener->is_unix) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    request_finish(c);
    close_now(c);
}

static void request_done(struct conn *c)
{
    bool keep = c->req->keep_alive && !c->server->draining && !c->raw;
    bool complete = c->req->body_complete;
    request_finish(c);
    if (c->state == CONN_DEAD)
        return;
    if (keep) {
        c->state = complete ? CONN_HEAD : CONN_DISCARD;
        c->skipped = 0;
        c->again = true;
    } else if (complete && c->cur.n == 0 && !c->can_read) {
        close_now(c);
    } else {
        linger(c);
    }
}

/* The body can't be read to its end: framing or time. */
static void body_fail(struct conn *c, int status, const char *text, int error)
{
    struct http_request *req = c->req;
    if (req->responded)
        c->gone = true;
    req->keep_alive = false;
    if (!req->responded)
        (void)http_respond_error(req, status, text);
    conn_body_error(req, error);
    c->again = true;
}

static void step_raw(struct conn *c)
{
    struct http_request *req = c->req;
    if (req->ended && buf_len(&c->out) == 0 && !c->shut)
        c->shut = conn_shut_down(c) != 0;
    if (c->shut && (req->body_over || req->reader == READER_NONE)) {
        request_done(c);
        return;
    }
    if (req->body_over || req->reader != READER_STREAM || req->paused)
        return;
    if (c->cur.n == 0 && !c->eof && !conn_fill(c, READ_BODY))
        return;
    c->again = true;
    if (c->cur.n) {
        struct str data = c->cur;
        c->cur = STR_NULL;
        c->moved_in = true;
        req->ops->on_data(req, data, req->reader_ctx);
    } else if (c->eof) {
        req->body_over = true;
        if (req->ops->on_end)
            req->ops->on_end(req, req->reader_ctx);
    }
}

/* An answer may take hours, and doesn't need it. */
static void body_whole(struct http_request *req)
{
    req->whole_fn(req, 0, req->body_view.n ? req->body_view : buf_str(&req->body), req->reader_ctx);
    buf_fini(&req->body);
}

static void step_body(struct conn *c)
{
    struct http_request *req = c->req;
    bool whole = req->reader == READER_WHOLE;
    if (req->body_over || req->ended || req->reader == READER_NONE || (req->paused && !whole))
        return;
    if (req->timed_out) {
        req->timed_out = false;
        body_fail(c, 408, "the body took too long", -ETIMEDOUT);
        return;
    }
    if (req->too_large) {
        req->keep_alive = false;
        conn_body_error(req, -EMSGSIZE);
        c->again = true;
        return;
    }
    if (req->body_complete) {
        req->body_over = true;
        if (whole)
            body_whole(req);
        else if (req->ops->on_end)
            req->ops->on_end(req, req->reader_ctx);
        c->again = true;
        return;
    }
    if (c->cur.n == 0 && !c->stopped) {
        if (req->expects_continue && !req->body_begun)
            response_continue(c);
        if (!conn_fill(c, req->content_length < 0 ? READ_CHUNKED : READ_BODY))
            return;
        if (c->eof)
            c->gone = true;
    }
    c->again = true;
    if (!c->gone && !parse_some(c))
        body_fail(c, req->refuse_status, req->refuse_text, -EPROTO);
}

/* A stream without an end is not worth going on with when the client closed its side; see http/request.h. */
static bool client_left(const struct conn *c)
{
    const struct http_request *req = c->req;
    if (c->gone)
        return true;
    if (c->raw)
        return c->hung_up && req->reader == READER_NONE;
    if (req->watches_client && c->half_closed && !req->ended)
        return true;
    if (!req->body_complete)
        return false;
    return c->hung_up || (c->half_closed && (req->chunked || req->until_close) && !req->ended);
}

static bool has_drained(const struct conn *c)
{
    const struct http_request *req = c->req;
    if (req->ended || (!req->was_high && !req->awaits_sent))
        return false;
    return buf_len(&c->out) <= (req->awaits_sent ? 0 : c->server->limits.write_low);
}

static void step_request(struct conn *c)
{
    struct http_request *req = c->req;
    if (req->aborted || c->server->closing || client_left(c)) {
        request_cut(c);
    } else if (has_drained(c)) {
        req->was_high = req->awaits_sent = false;
        c->again = true;
        if (req->on_drain)
            req->on_drain(req, req->drain_ctx);
    } else if (c->raw) {
        step_raw(c);
    } else if (req->ended && buf_len(&c->out) == 0) {
        request_done(c);
    } else {
        step_body(c);
    }
}

static void step_handshake(struct conn *c)
{
    if (c->server->draining) {
        close_now(c);
        return;
    }
    const enum conn_tls_step step = conn_tls_handshake(c);
    if (step == CONN_TLS_WAITS)
        return;
    c->server->n_handshakes--;
    c->state = CONN_HEAD;
    switch (step) {
    case CONN_TLS_READY:
        c->again = true;
        break;
    case CONN_TLS_PLAIN:
        conn_tls_close(c);
        response_refuse(c, 400, "this port speaks TLS: use https:// here, not http://");
        break;
    case CONN_TLS_FAILED:
        linger(c); /* so that the alert arrives */
        break;
    case CONN_TLS_WAITS:
        break;
    }
}

static void step_head(struct conn *c)
{
    if (c->refused) {
        c->cur = STR_NULL;
        if (buf_len(&c->out) == 0)
            linger(c);
        return;
    }
    if (!c->req && c->server->draining) {
        close_now(c);
        return;
    }
    if (c->cur.n == 0 && !conn_fill(c, READ_HEAD)) {
        conn_head_waits(c);
        return;
    }
    if (c->cur.n == 0) { /* EOF, or gone */
        close_now(c);
        return;
    }
    c->again = true;
    if (!c->req) {
        /* Old clients send an empty line behind a body. It must not start the clock of a head. */
        while (c->cur.n >= 2 && c->cur.p[0] == '\r' && c->cur.p[1] == '\n')
            c->cur = str_sub(c->cur, 2);
        if (c->cur.n == 0)
            return;
        if (c->requests_left == 0) {
            c->again = false;
            server_schedule(c->server, c);
            return;
        }
        c->requests_left--;
        c->req = request_new(c);
        parse_begin(c);
    }
    if (!parse_some(c)) {
        response_refuse(c, c->req->refuse_status, c->req->refuse_text);
    } else if (!c->req->head_complete) {
        conn_head_waits(c);
    } else {
        conn_head_over(c);
        c->state = CONN_ACTIVE;
        c->timed_class = TIMED_NONE;
        list_remove(&c->timed);
        c->server->on_request(c->req, c->server->ctx);
    }
}

static void step_discard(struct conn *c)
{
    if (c->message_done) {
        c->state = CONN_HEAD;
        c->again = true;
        return;
    }
    if (c->cur.n == 0 && !c->stopped && !conn_fill(c, READ_BODY))
        return;
    size_t before = c->cur.n;
    if (c->eof || c->gone || !parse_some(c)) {
        close_now(c);
        return;
    }
    c->skipped += before - c->cur.n;
    c->again = true;
    if (!c->message_done && c->skipped > DISCARD_MAX)
        linger(c);
}

static void step_linger(struct conn *c)
{
    c->cur = STR_NULL;
    if (c->notify_due && conn_shut_down(c) < 0) {
        close_now(c);
        return;
    }
    if (!conn_fill(c, READ_BODY))
        return;
    c->skipped += c->cur.n;
    c->cur = STR_NULL;
    if (c->eof || c->gone || c->skipped > LINGER_MAX || c->server->closing)
        close_now(c);
    c->again = true;
}

static void conn_step(struct conn *c)
{
    if (buf_len(&c->out))
        conn_flush(c);
    if (c->state == CONN_ACTIVE)
        step_request(c);
    else if (c->gone || c->server->closing)
        close_now(c);
    else if (c->state == CONN_HEAD)
        step_head(c);
    else if (c->state == CONN_HANDSHAKE)
        step_handshake(c);
    else if (c->state == CONN_DISCARD)
        step_discard(c);
    else
        step_linger(c);
}

static enum timed class_now(const struct conn *c)
{
    const struct http_request *req = c->req;
    if (c->state == CONN_HANDSHAKE)
        return TIMED_HANDSHAKE;
    if (buf_len(&c->out) || c->notify_due)
        return req && !req->ended ? TIMED_WRITE : TIMED_LAST;
    if (c->state == CONN_LINGER)
        return TIMED_LINGER;
    if (c->state == CONN_HEAD)
        return req || conn_tls_has_part(c) ? TIMED_HEAD : TIMED_IDLE;
    if (c->state == CONN_DISCARD)
        return TIMED_DISCARD;
    /* A stream both ways has no time, until what is left is that the client ends its side. */
    return req->reader != READER_NONE && !req->paused && !req->body_over && (!c->raw || c->shut) ? TIMED_BODY
                                                                                                 : TIMED_NONE;
}

static void watch_time(struct conn *c)
{
    struct http_server *s = c->server;
    const unsigned duration[] = {
        [TIMED_IDLE] = s->limits.idle_timeout_ms,
        [TIMED_HEAD] = s->limits.header_timeout_ms,
        [TIMED_HANDSHAKE] = s->limits.header_timeout_ms,
        [TIMED_BODY] = s->limits.body_timeout_ms,
        [TIMED_DISCARD] = s->limits.body_timeout_ms, /* of the whole body: it is not waited for */
        [TIMED_WRITE] = s->limits.write_timeout_ms,
        [TIMED_LAST] = s->limits.write_timeout_ms,
        [TIMED_LINGER] = LINGER_MS,
    };
    enum timed kind = class_now(c);
    bool moved = kind == TIMED_BODY ? c->moved_in : (kind == TIMED_WRITE || kind == TIMED_LAST) && c->moved_out;
    if (kind == c->timed_class && !moved)
        return;
    list_remove(&c->timed);
    c->timed_class = (uint8_t)kind;
    if (kind == TIMED_NONE)
        return;
    c->deadline = uv_now(s->loop) + duration[kind];
    list_append(&s->timed[kind], &c->timed);
}

/* What was not parsed outlives the shared buffer. */
static void keep_input(struct conn *c)
{
    const char *end = c->in.data ? c->in.data + c->in.end : NULL;
    if (c->cur.n == 0)
        buf_clear(&c->in);
    else if (c->cur.p + c->cur.n == end)
        buf_consume(&c->in, buf_len(&c->in) - c->cur.n);
    else if (buf_append_str(&c->in, c->cur) < 0)
        c->gone = true;
    c->cur = STR_NULL;
    if (c->state == CONN_HEAD && !c->req) {
        if (buf_len(&c->in) == 0)
            buf_fini(&c->in);
        if (buf_len(&c->out) == 0)
            buf_fini(&c->out);
    }
}

void conn_run(struct conn *c)
{
    if (c->state == CONN_DEAD)
        return;
    assert(!c->server->running);
    c->server->running = c->running = true;
    const unsigned crowd = MAX(c->server->n_conns, (unsigned)RUN_CROWD);
    c->reads_left = (uint8_t)MAX(RUN_READS * RUN_CROWD / crowd, 1U);
    c->requests_left = (uint8_t)MAX(RUN_REQUESTS * RUN_CROWD / crowd, 1U);
    c->cur = buf_str(&c->in);
    do {
        c->again = false;
        conn_step(c);
    } while (c->again && c->state != CONN_DEAD);
    if (c->state != CONN_DEAD) {
        keep_input(c);
        watch_time(c);
        c->moved_in = c->moved_out = false;
        if (c->gone)
            server_schedule(c->server, c);
    }
    c->server->running = c->running = false;
}

void conn_kick(struct conn *c)
{
    if (c->running)
        c->again = true;
    else if (c->state != CONN_DEAD)
        server_schedule(c->server, c);
}

void conn_event(struct conn *c, uint32_t events)
{
    if (c->state == CONN_DEAD)
        return;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP))
        c->can_read = true;
    if (events & EPOLLOUT) {
        c->can_write = true;
        c->can_read |= c->tls != NULL; /* TLS may have to write before it goes on reading */
    }
    if (events & (EPOLLRDHUP | EPOLLHUP))
        c->half_closed = true;
    if (events & EPOLLHUP)
        c->hung_up = true;
    if (events & EPOLLERR)
        c->gone = true;
    conn_run(c);
}

void conn_drop(struct conn *c)
{
    c->gone = true;
    conn_run(c);
}

void conn_timeout(struct conn *c, enum timed kind)
{
    if (kind == TIMED_HEAD && c->state == CONN_HEAD) {
        response_refuse(c, 408, "the headers took too long");
    } else if (kind == TIMED_BODY && c->state == CONN_ACTIVE && !c->raw) {
        c->req->timed_out = true;
    } else {
        c->gone = true;
    }
    conn_run(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writing: response heads, bodies, the queue behind a full socket. Theory of operation: conn.h. */
#include "http/conn.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PARTS_MAX = 16, IOV_MAX_OURS = PARTS_MAX + 4 };

static struct iovec iov_of(const void *p, size_t n)
{
    return (struct iovec){.iov_base = (void *)p, .iov_len = n};
}

/* Sends what is queued and then iov, as far as the socket takes it; queues the rest. */
static void send_or_queue(struct conn *c, const struct iovec *iov, int n)
{
    assert(n < IOV_MAX_OURS);
    size_t sent = 0;
    if (c->can_write && !c->gone) {
        struct iovec v[IOV_MAX_OURS + 1];
        struct msghdr msg = {.msg_iov = v};
        size_t total = 0;
        if (buf_len(&c->out))
            v[msg.msg_iovlen++] = iov_of(buf_data(&c->out), buf_len(&c->out));
        for (int i = 0; i < n; i++)
            v[msg.msg_iovlen++] = iov[i];
        for (size_t i = 0; i < msg.msg_iovlen; i++)
            total += v[i].iov_len;
        ssize_t r;
        if (c->tls)
            r = conn_tls_send(c, v, msg.msg_iovlen);
        else
            do
                r = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
            while (r < 0 && errno == EINTR);
        if (r < 0 && errno != EAGAIN)
            c->gone = true;
        sent = r > 0 ? (size_t)r : 0;
        c->moved_out |= sent > 0;
        if (sent < total)
            c->can_write = false;
    }
    if (c->gone) {
        buf_clear(&c->out);
        return;
    }
    size_t from_queue = MIN(sent, buf_len(&c->out));
    buf_consume(&c->out, from_queue);
    sent -= from_queue;
    for (int i = 0; i < n; i++) {
        size_t skip = MIN(sent, iov[i].iov_len);
        sent -= skip;
        if (skip < iov[i].iov_len &&
            buf_append(&c->out, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip) < 0) {
            c->gone = true; /* no memory; half a message is worse than none */
            return;
        }
    }
}

/* False: there is no memory for it. */
static bool queue_count(struct conn *c)
{
    struct http_request *req = c->req;
    size_t now = c->out.cap / QUEUE_STEP * QUEUE_STEP;
    if (!req || !req->queue_fn || now == req->queue_counted)
        return true;
    if (!req->queue_fn(req->queue_ctx, req->queue_counted, now))
        return false;
    req->queue_counted = now;
    return true;
}

void conn_flush(struct conn *c)
{
    if (!c->can_write)
        return;
    send_or_queue(c, NULL, 0);
    if (buf_len(&c->out) || c->out.cap <= QUEUE_KEEP)
        return;
    buf_fini(&c->out);
    (void)queue_count(c);
}

/* What can't be sent whole is not sent. */
static int give_up(struct http_request *req)
{
    req->aborted = true;
    conn_kick(req->conn);
    return -ENOBUFS;
}

/* Small pieces are gathered: conn_run(), which was told, sends them at its next look. */
static ssize_t response_enqueue(struct http_request *req, const struct iovec *iov, int n)
{
    struct conn *c = req->conn;
    size_t total = 0;
    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    size_t queued = buf_len(&c->out);
    if (queued && total > c->server->limits.write_max - MIN(queued, c->server->limits.write_max))
        return give_up(req);
    if (queued + total < WRITE_GATHER || !c->can_write) {
        for (int i = 0; i < n; i++)
            (void)buf_append(&c->out, iov[i].iov_base, iov[i].iov_len);
        if (buf_error(&c->out))
            c->gone = true;
    } else {
        send_or_queue(c, iov, n);
    }
    conn_kick(c);
    if (c->gone)
        return -EPIPE;
    if (!queue_count(c))
        return give_up(req);
    queued = buf_len(&c->out);
    if (queued >= c->server->limits.write_high)
        req->was_high = true;
    return (ssize_t)queued;
}

static void append_header(struct buf *b, struct str name, struct str value)
{
    if (!http_is_token(name) || !http_is_field_value(value))
        return;
    http_append_field(b, name, value);
}

static bool is_ours(struct str name)
{
    return http_list_has(STR("date,connection,content-length,transfer-encoding"), name);
}

static void append_headers(struct http_request *req, struct buf *b, const struct http_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_ours(headers[i].name))
            append_header(b, headers[i].name, headers[i].value);
    }
    for (const struct added_header *a = req->added; a; a = a->next) {
        if (!is_ours(a->header.name))
            append_header(b, a->header.name, a->header.value);
    }
}

static void append_status(struct buf *b, int status)
{
    buf_append(b, "HTTP/1.1 ", 9);
    buf_append_u64(b, (uint64_t)status);
    buf_append_char(b, ' ');
    buf_append_cstr(b, http_status_text(status));
    buf_append(b, "\r\n", 2);
}

static void append_date(struct conn *c, struct buf *b)
{
    buf_append(b, "date: ", 6);
    buf_append_cstr(b, server_date(c->server));
    buf_append(b, "\r\n", 2);
}

/*
 * Reading a large unwanted body only to keep a connection is a bad bargain, and a client that waits for 100 may never
 * send it.
 */
static bool keeps_alive(const struct http_request *req, bool ends_now)
{
    if (!req->keep_alive || req->conn->server->draining)
        return false;
    if (req->body_complete || (req->reader == READER_STREAM && !ends_now))
        return true;
    if (req->expects_continue && !req->body_begun)
        return false;
    return req->content_length >= 0 && req->content_length <= DISCARD_MAX;
}

static struct buf *build_head(struct http_request *req, int status, const struct http_header *headers, size_t n_headers,
                              int64_t length, bool ends_now)
{
    struct conn *c = req->conn;
    struct buf *b = &c->server->head;
    bool bodiless = status < 200 || status == 204 || status == 304;
    req->responded = true;
    req->no_body = req->is_head || bodiless;
    req->chunked = length < 0 && !req->http10 && !bodiless;
    req->until_close = length < 0 && req->http10 && !req->no_body;
    req->keep_alive = keeps_alive(req, ends_now) && !req->until_close;
    req->response_left = length < 0 ? UINT64_MAX : (uint64_t)length;

    buf_clear(b);
    append_status(b, status);
    append_date(c, b);
    append_headers(req, b, headers, n_headers);
    if (length >= 0 && !bodiless) {
        buf_append(b, "content-length: ", 16);
        buf_append_u64(b, (uint64_t)length);
        buf_append(b, "\r\n", 2);
    } else if (req->chunked) {
        buf_append_cstr(b, "transfer-encoding: chunked\r\n");
    }
    if (!req->keep_alive)
        buf_append_cstr(b, "connection: close\r\n");
    else if (req->http10)
        buf_append_cstr(b, "connection: keep-alive\r\n");
    buf_append(b, "\r\n", 2);
    return b;
}

static bool may_respond(struct http_request *req)
{
    struct conn *c = request_conn(req);
    return !req->responded && !req->aborted && !c->gone;
}

int http_respond(struct http_request *req, int status, const struct http_header *headers, size_t n_headers,
                 struct str body)
{
    if (!may_respond(req))
        return -EPIPE;
    struct buf *head = build_head(req, status, headers, n_headers, (int64_t)body.n, true);
    if (buf_error(head))
        return give_up(req);
    struct iovec iov[] = {iov_of(buf_data(head), buf_len(head)), iov_of(body.p, body.n)};
    send_or_queue(req->conn, iov, req->no_body || body.n == 0 ? 1 : 2);
    req->ended = true;
    conn_kick(req->conn);
    return req->conn->gone ? -EPIPE : 0;
}

static void append_error_body(struct buf *b, int status, const char *message)
{
    buf_printf(b, "{\"code\":%d,\"message\":", status);
    buf_append_json_string(b, str_of(message));
    buf_append_char(b, '}');
}

int http_respond_error(struct http_request *req, int status, const char *message)
{
    AUTO_BUF struct buf body = BUF_INIT(16 * 1024);
    append_error_body(&body, status, message);
    return http_respond(req, status, &HTTP_JSON, 1, buf_str(&body));
}

int http_response_begin(struct http_request *req, int status, const struct http_header *headers, size_t n_headers,
                        int64_t content_length)
{
    if (!may_respond(req))
        return -EPIPE;
    struct buf *head = build_head(req, status, headers, n_headers, content_length, false);
    if (buf_error(head))
        return give_up(req);
    struct iovec iov = iov_of(buf_data(head), buf_len(head));
    ssize_t r = response_enqueue(req, &iov, 1);
    return r < 0 ? (int)r : 0;
}

ssize_t http_response_writev(struct http_request *req, const struct str *parts, size_t n)
{
    struct conn *c = request_conn(req);
    assert(n <= PARTS_MAX);
    if (!req->responded || req->ended || req->aborted || c->gone)
        return -EPIPE;
    struct iovec iov[IOV_MAX_OURS];
    char size_line[24];
    int used = 0;
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += parts[i].n;
    if (total > req->response_left && !req->no_body)
        return -EMSGSIZE;
    if (total == 0 || req->no_body)
        return (ssize_t)buf_len(&c->out);
    if (req->chunked)
        iov[used++] = iov_of(size_line, (size_t)snprintf(size_line, sizeof(size_line), "%zx\r\n", total));
    for (size_t i = 0; i < n; i++) {
        if (parts[i].n)
            iov[used++] = iov_of(parts[i].p, parts[i].n);
    }
    if (req->chunked)
        iov[used++] = iov_of("\r\n", 2);
    ssize_t r = response_enqueue(req, iov, used);
    if (r >= 0 && req->response_left != UINT64_MAX)
        req->response_left -= total;
    return r;
}

ssize_t http_response_write(struct http_request *req, struct str data)
{
    return http_response_writev(req, &data, 1);
}

size_t http_response_queued(const struct http_request *req)
{
    return buf_len(&request_conn(req)->out);
}

bool http_response_full(const struct http_request *req)
{
    (void)request_conn(req);
    return req->was_high;
}

int http_response_end(struct http_request *req)
{
    struct conn *c = request_conn(req);
    if (!req->responded || req->ended || req->aborted || c->gone)
        return -EPIPE;
    if (req->response_left != UINT64_MAX && req->response_left && !req->no_body) {
        http_abort(req);
        return -EPIPE;
    }
    req->ended = true;
    if (req->chunked && !req->no_body && buf_append(&c->out, "0\r\n\r\n", 5) < 0)
        c->gone = true;
    conn_kick(c);
    return c->gone ? -EPIPE : 0;
}

bool http_response_begun(const struct http_request *req)
{
    return request_conn(req)->req == req && req->responded;
}

void http_abort_saying(struct http_request *req, struct http_header trailer)
{
    struct conn *c = request_conn(req);
    if (req->responded && !req->ended && !req->aborted && !c->gone && req->chunked && !req->no_body &&
        http_is_token(trailer.name) && http_is_field_value(trailer.value))
        buf_printf(&c->out, "0\r\n%.*s: %.*s\r\n", STR_ARG(trailer.name), STR_ARG(trailer.value));
    http_abort(req);
}

void http_abort(struct http_request *req)
{
    struct conn *c = request_conn(req);
    if (req->ended && !c->raw)
        return;
    if (!req->aborted)
        conn_flush(c); /* what was gathered in this turn */
    req->aborted = true;
    buf_clear(&c->out);
    conn_kick(c);
}

void http_add_header(struct http_request *req, struct str name, struct str value)
{
    (void)request_conn(req);
    struct added_header *a = arena_alloc(&req->arena, sizeof(*a));
    a->header.name = arena_str(&req->arena, name);
    a->header.value = arena_str(&req->arena, value);
    *req->added_tail = a;
    req->added_tail = &a->next;
}

bool http_client_has_read(const struct http_request *req)
{
    int left = 0;
    return !http_response_queued(req) && ioctl(request_conn(req)->fd, TIOCOUTQ, &left) == 0 && left == 0;
}

int http_upgrade(struct http_request *req, const struct http_header *headers, size_t n_headers)
{
    struct conn *c = request_conn(req);
    if (!may_respond(req))
        return -EPIPE;
    if (!req->body_complete)
        return -EBUSY;
    struct buf *b = &c->server->head;
    buf_clear(b);
    append_status(b, 101);
    buf_append_cstr(b, "connection: upgrade\r\n");
    append_headers(req, b, headers, n_headers);
    buf_append(b, "\r\n", 2);
    if (buf_error(b))
        return give_up(req);
    req->responded = true;
    req->keep_alive = req->no_body = req->chunked = req->until_close = false;
    req->response_left = UINT64_MAX;
    req->reader = READER_NONE;
    req->paused = req->body_over = false;
    c->raw = true;
    struct iovec iov = iov_of(buf_data(b), buf_len(b));
    ssize_t r = response_enqueue(req, &iov, 1);
    return r < 0 ? (int)r : 0;
}

void response_continue(struct conn *c)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = iov_of(text, sizeof(text) - 1);
    c->req->expects_continue = false;
    if (!c->req->responded)
        send_or_queue(c, &iov, 1);
}

void response_refuse(struct conn *c, int status, const char *text)
{
    AUTO_BUF struct buf body = BUF_INIT(1024);
    append_error_body(&body, status, text);
    append_status(&c->out, status);
    append_date(c, &c->out);
    append_header(&c->out, STR("content-type"), STR("application/json"));
    buf_append_cstr(&c->out, "content-length: ");
    buf_append_u64(&c->out, buf_len(&body));
    buf_append_cstr(&c->out, "\r\nconnection: close\r\n\r\n");
    buf_append_str(&c->out, buf_str(&body));
    assert(c->state == CONN_HEAD);
    if (c->req)
        request_release(TAKE_PTR(c->req));
    conn_head_over(c);
    c->refused = true;
    c->again = true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client/client.h"
#include "base/fd.h"
#include "base/mem.h"
#include "http/endpoint.h"
#include "http/fields.h"
#include "http/tls/client_tls.h"
#include "http/url.h"

#include <llhttp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { READ_SIZE = 64 * 1024, IN_MAX = 4 * 1024 * 1024, HEAD_MAX = 64 * 1024, FIELDS_BYTES = 32 * 1024 };

enum phase {
    FRESH,   /* no request yet, or the last response was read to its end */
    SENDING, /* a body may follow */
    WAITING, /* for the response's head */
    READING, /* its body */
    COMPLETE,
    RAW,
    BROKEN,
};

struct http_client {
    struct endpoint endpoint;
    int fd, timeout_ms;
    usec_t until;       /* 0: none */
    struct ssl_st *tls; /* NULL: none */
    enum phase phase;
    bool chunked, head_only, keep_alive, eof;
    bool refused; /* the server does not read the rest of the request's body */
    int64_t left; /* of the request's body, unless chunked */
    struct buf in;
    llhttp_t parser;
    struct fields fields, trailers;
    int status;
    int error; /* of BROKEN */
    char *to;  /* where on_body copies, for one call */
    size_t to_n;
};

static int reconnect(struct http_client *c)
{
    client_tls_free(TAKE_PTR(c->tls));
    (void)fd_close(TAKE_FD(c->fd));
    buf_clear(&c->in);
    c->eof = false;
    c->phase = FRESH;
    int r = endpoint_connect(&c->endpoint, c->timeout_ms, &c->fd);
    return r == 0 && c->endpoint.has_tls ? client_tls_open(c->fd, c->endpoint.host, c->timeout_ms, &c->tls) : r;
}

int http_client_open(const char *endpoint, int timeout_ms, struct http_client **ret_client)
{
    AUTO(http_client_free) struct http_client *c = mem_new(struct http_client);
    c->fd = -1;
    c->timeout_ms = timeout_ms;
    buf_init(&c->in, IN_MAX);
    fields_init(&c->fields, FIELDS_MAX, FIELDS_BYTES);
    fields_init(&c->trailers, FIELDS_MAX, FIELDS_BYTES);
    int r = endpoint_parse(endpoint, &c->endpoint);
    if (r == 0)
        r = reconnect(c);
    if (r < 0)
        return r;
    *ret_client = TAKE_PTR(c);
    return 0;
}

void http_client_free(struct http_client *c)
{
    if (!c)
        return;
    client_tls_free(c->tls);
    (void)fd_close(c->fd);
    buf_fini(&c->in);
    fields_fini(&c->fields);
    fields_fini(&c->trailers);
    endpoint_fini(&c->endpoint);
    mem_free(c);
}

void http_client_timeout(struct http_client *c, int timeout_ms)
{
    c->timeout_ms = timeout_ms;
}

void http_client_until(struct http_client *c, usec_t until)
{
    c->until = until;
}

static int client_wait(const struct http_client *c, short events, short *ret_events)
{
    usec_t now = clock_mono();
    int ms = c->timeout_ms;
    if (c->until && now >= c->until)
        return -ETIMEDOUT;
    if (c->until) {
        int left = (int)MIN((c->until - now) / USEC_PER_MS + 1, (usec_t)INT32_MAX);
        ms = ms < 0 ? left : MIN(ms, left);
    }
    return endpoint_wait(c->fd, events, ms, ret_events);
}

/* One read into `in`; 0 also when there is nothing now. */
static int read_some(struct http_client *c)
{
    char *to = buf_reserve(&c->in, READ_SIZE);
    if (!to)
        return buf_error(&c->in);
    /* More than a record of TLS holds: what it decrypted never waits in there while the socket is silent. */
    ssize_t n = c->tls ? client_tls_read(c->tls, to, READ_SIZE) : recv(c->fd, to, READ_SIZE, MSG_DONTWAIT);
    int error = n >= 0 ? 0 : c->tls ? (int)-n : errno;
    if (n > 0)
        buf_commit(&c->in, (size_t)n);
    else if (n == 0)
        c->eof = true;
    return error == EAGAIN || error == EINTR ? 0 : -error;
}

/* A count, or -errno. */
static ssize_t send_some(struct http_client *c, struct iovec *iov, size_t n)
{
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
    if (c->tls)
        return client_tls_write(c->tls, iov->iov_base, iov->iov_len);
    ssize_t sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? -errno : sent;
}

/* While the socket is full, what the other side sends is taken in: it may be waiting for that. */
static int send_all(struct http_client *c, struct iovec *iov, size_t n)
{
    while (n) {
        if (iov->iov_len == 0) {
            iov++, n--;
            continue;
        }
        ssize_t sent = send_some(c, iov, n);
        if (sent < 0 && sent != -EAGAIN && sent != -EINTR)
            return sent == -ECONNRESET ? -EPIPE : (int)sent;
        if (sent >= 0) {
            size_t done = (size_t)sent;
            for (; n && done >= iov->iov_len; iov++, n--)
                done -= iov->iov_len;
            if (n)
                *iov = (struct iovec){(char *)iov->iov_base + done, iov->iov_len - done};
            continue;
        }
        bool room = !c->eof && buf_len(&c->in) + READ_SIZE <= IN_MAX;
        short events;
        int r = client_wait(c, (short)(POLLOUT | (room ? POLLIN : 0)), &events);
        if (r == 0 && room && (events & POLLIN))
            r = read_some(c);
        if (r < 0)
            return r;
    }
    return 0;
}

static int send_text(struct http_client *c, struct str head, struct str body)
{
    struct iovec iov[] = {{(void *)(uintptr_t)head.p, head.n}, {(void *)(uintptr_t)body.p, body.n}};
    return send_all(c, iov, body.n ? 2 : 1);
}

/* ---- parsing ---- */

static int client_on_begin(llhttp_t *parser)
{
    struct http_client *c = parser->data;
    fields_reset(&c->fields);
    return 0;
}

/* What comes behind the body is kept apart: it changes nothing that was said before. */
static struct fields *fields_now(struct http_client *c)
{
    return c->phase == READING ? &c->trailers : &c->fields;
}

static int client_on_field(llhttp_t *parser, const char *p, size_t n)
{
    struct http_client *c = parser->data;
    return fields_add_name(fields_now(c), p, n);
}

static int client_on_field_complete(llhttp_t *parser)
{
    struct http_client *c = parser->data;
    return fields_name_done(fields_now(c));
}

static int client_on_value(llhttp_t *parser, const char *p, size_t n)
{
    struct http_client *c = parser->data;
    return fields_add_value(fields_now(c), p, n);
}

static int client_on_head(llhttp_t *parser)
{
    struct http_client *c = parser->data;
    if (parser->status_code < 200 && parser->status_code != 101)
        return 1; /* and no body, whatever its headers say */
    c->status = parser->status_code;
    c->phase = c->status == 101 ? RAW : READING;
    c->keep_alive = c->phase == READING && llhttp_should_keep_alive(parser);
    if (c->head_only || c->status == 204 || c->status == 304)
        parser->flags |= F_SKIPBODY;
    return HPE_PAUSED;
}

static int client_on_body(llhttp_t *parser, const char *p, size_t n)
{
    struct http_client *c = parser->data;
    assert(n <= c->to_n);
    if (n)
        memcpy(c->to, p, n);
    c->to += n;
    c->to_n -= n;
    return 0;
}

static int client_on_complete(llhttp_t *parser)
{
    struct http_client *c = parser->data;
    if (c->phase != READING)
        return 0; /* a 1xx */
    c->phase = COMPLETE;
    return HPE_PAUSED;
}

static const llhttp_settings_t client_settings = {
    .on_message_begin = client_on_begin,
    .on_header_field = client_on_field,
    .on_header_field_complete = client_on_field_complete,
    .on_header_value = client_on_value,
    .on_headers_complete = client_on_head,
    .on_body = client_on_body,
    .on_message_complete = client_on_complete,
};

static int break_off(struct http_client *c, int error)
{
    c->phase = BROKEN;
    return c->error = error;
}

/* Parses at most max bytes of `in`, so that no more body than that can come of it. */
static int parse(struct http_client *c, size_t max)
{
    size_t n = MIN(max, buf_len(&c->in));
    const char *p = n ? buf_data(&c->in) : "";
    enum llhttp_errno r = llhttp_execute(&c->parser, p, n);
    if (r == HPE_PAUSED || r == HPE_PAUSED_UPGRADE) {
        const char *pos = llhttp_get_error_pos(&c->parser);
        n = pos >= p && pos <= p + n ? (size_t)(pos - p) : n;
        if (r == HPE_PAUSED)
            llhttp_resume(&c->parser);
        else
            llhttp_resume_after_upgrade(&c->parser);
    } else if (r != HPE_OK) {
        return break_off(c, -EPROTO);
    }
    buf_consume(&c->in, n);
    return 0;
}

/* More input, waiting for it. At the end of the connection the parser decides whether that was an end. */
static int more(struct http_client *c)
{
    short events;
    int r = client_wait(c, POLLIN, &events);
    if (r == 0)
        r = read_some(c);
    if (r == -ECONNRESET)
        r = -EPIPE;
    if (r == 0 && c->eof && buf_len(&c->in) == 0 && c->phase != RAW) {
        if (c->phase == READING)
            (void)llhttp_finish(&c->parser); /* ends a body that goes until close, by client_on_complete() */
        r = c->phase == COMPLETE ? 0 : -EPIPE;
        c->keep_alive = false;
    }
    return r < 0 && r != -ETIMEDOUT ? break_off(c, r) : r;
}

/* ---- requests ---- */

static bool reusable(struct http_client *c)
{
    char peek;
    if (c->fd < 0 || c->eof || buf_len(&c->in))
        return false;
    if (c->phase != FRESH && (c->phase != COMPLETE || !c->keep_alive))
        return false;
    if (c->tls)
        return client_tls_is_quiet(c->tls);
    return recv(c->fd, &peek, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static int client_append_request(const struct http_client *c, struct buf *b, const char *method, const char *target,
                                 const struct http_header *headers, size_t n_headers, int64_t content_length,
                                 bool has_body)
{
    struct str path, query;
    if (!http_is_token(str_of(method)) || url_split_target(str_of(target), &path, &query) < 0)
        return -EINVAL;
    buf_printf(b, "%s %s HTTP/1.1\r\nhost: %s\r\n", method, target, c->endpoint.authority);
    for (size_t i = 0; i < n_headers; i++) {
        if (!http_is_token(headers[i].name) || !http_is_field_value(headers[i].value))
            return -EINVAL;
        buf_printf(b, "%.*s: %.*s\r\n", STR_ARG(headers[i].name), STR_ARG(headers[i].value));
        if (str_eq_nocase(headers[i].name, STR("upgrade")))
            buf_append_cstr(b, "connection: upgrade\r\n");
    }
    if (content_length < 0)
        buf_append_cstr(b, "transfer-encoding: chunked\r\n");
    else if (has_body)
        buf_printf(b, "content-length: %lld\r\n", (long long)content_length);
    buf_append_cstr(b, "\r\n");
    return buf_error(b);
}

static int http_client_start(struct http_client *c, const char *method, const char *target,
                             const struct http_header *headers, size_t n_headers, int64_t content_length,
                             struct str body)
{
    AUTO_BUF struct buf head = BUF_INIT(HEAD_MAX);
    bool bodiless = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 || strcmp(method, "DELETE") == 0;
    int r = client_append_request(c, &head, method, target, headers, n_headers, content_length,
                                  content_length > 0 || !bodiless);
    if (r < 0)
        return r;
    if (!reusable(c)) {
        r = reconnect(c);
        if (r < 0)
            return break_off(c, r);
    }
    fields_reset(&c->fields);
    fields_reset(&c->trailers);
    llhttp_init(&c->parser, HTTP_RESPONSE, (llhttp_settings_t *)&client_settings);
    c->parser.data = c;
    c->head_only = strcmp(method, "HEAD") == 0;
    c->refused = false;
    c->chunked = content_length < 0;
    c->left = content_length;
    c->status = 0;
    c->phase = SENDING;
    return send_text(c, buf_str(&head), body);
}

int http_client_send(struct http_client *c, const char *method, const char *target, const struct http_header *headers,
                     size_t n_headers, struct str body)
{
    int r = http_client_start(c, method, target, headers, n_headers, (int64_t)body.n, body);
    if (r == 0)
        c->phase = WAITING;
    return r;
}

int http_client_begin(struct http_client *c, const char *method, const char *target, const struct http_header *headers,
                      size_t n_headers, int64_t content_length)
{
    return http_client_start(c, method, target, headers, n_headers, content_length, STR_NULL);
}

static int send_part(struct http_client *c, struct str data)
{
    if (!c->chunked)
        return send_text(c, data, STR_NULL);
    char size_line[24];
    int n = snprintf(size_line, sizeof(size_line), "%zx\r\n", data.n);
    struct iovec iov[] = {{size_line, (size_t)n}, {(void *)(uintptr_t)data.p, data.n}, {(void *)(uintptr_t) "\r\n", 2}};
    return send_all(c, iov, ARRAY_SIZE(iov));
}

int http_client_write(struct http_client *c, struct str data)
{
    if (data.n == 0)
        return 0;
    if (c->phase == RAW)
        return send_text(c, data, STR_NULL);
    if (c->phase != SENDING || c->refused)
        return -EPIPE;
    if (!c->chunked && (uint64_t)c->left < data.n)
        return -EMSGSIZE;
    int r = send_part(c, data);
    c->refused = r == -EPIPE;
    c->left -= c->chunked ? 0 : (int64_t)data.n;
    return r;
}

ssize_t http_client_write_some(struct http_client *c, struct str data)
{
    struct iovec iov = {(void *)(uintptr_t)data.p, data.n};
    return c->phase == RAW ? send_some(c, &iov, 1) : -EPIPE;
}

int http_client_end(struct http_client *c)
{
    if (c->phase == RAW && c->tls)
        return client_tls_half_close(c->tls);
    if (c->phase == RAW)
        return shutdown(c->fd, SHUT_WR) < 0 ? -errno : 0;
    if (c->phase != SENDING || c->refused)
        return -EPIPE;
    if (!c->chunked && c->left)
        return -EMSGSIZE;
    c->phase = WAITING;
    return c->chunked ? send_text(c, STR("0\r\n\r\n"), STR_NULL) : 0;
}

int http_client_receive(struct http_client *c)
{
    /* Also while the body is not complete: the server may have answered early. */
    if (c->phase != WAITING && c->phase != SENDING)
        return -EPIPE;
    c->phase = WAITING;
    for (;;) {
        int r = buf_len(&c->in) ? parse(c, SIZE_MAX) : more(c);
        if (r < 0 || c->phase == READING || c->phase == RAW)
            return r;
    }
}

int http_client_status(const struct http_client *c)
{
    return c->status;
}

struct str http_client_header(const struct http_client *c, const char *name)
{
    return fields_get(&c->fields, str_of(name));
}

struct str http_client_trailer(const struct http_client *c, const char *name)
{
    return fields_get(&c->trailers, str_of(name));
}

static ssize_t read_raw(struct http_client *c, void *p, size_t n)
{
    while (buf_len(&c->in) == 0 && !c->eof) {
        int r = more(c);
        if (r < 0)
            return r;
    }
    n = MIN(n, buf_len(&c->in));
    if (n)
        memcpy(p, buf_data(&c->in), n);
    buf_consume(&c->in, n);
    return (ssize_t)n;
}

ssize_t http_client_read(struct http_client *c, void *p, size_t n)
{
    if (n == 0)
        return 0;
    if (c->phase == RAW)
        return read_raw(c, p, n);
    c->to = p;
    c->to_n = n;
    for (;;) {
        if (c->phase == COMPLETE && c->to_n == n)
            return 0;
        if (c->phase != READING && c->phase != COMPLETE)
            return c->phase == BROKEN ? c->error : -EPIPE;
        /* Without a body the end follows without another byte. */
        int r = parse(c, c->to_n);
        if (c->to_n < n)
            return (ssize_t)(n - c->to_n); /* an error is told by the next call */
        if (r < 0)
            return r;
        if (c->phase == READING && buf_len(&c->in) == 0 && (r = more(c)) < 0)
            return r;
    }
}

int http_client_read_all(struct http_client *c, struct buf *b)
{
    char piece[READ_SIZE / 4];
    for (;;) {
        ssize_t n = http_client_read(c, piece, sizeof(piece));
        if (n <= 0)
            return (int)n;
        int r = buf_append(b, piece, (size_t)n);
        if (r < 0)
            return r;
    }
}

int http_client_fd(const struct http_client *c)
{
    return c->fd;
}

bool http_client_pending(const struct http_client *c)
{
    return buf_len(&c->in) > 0 || c->eof || c->phase == COMPLETE || c->phase == BROKEN;
}

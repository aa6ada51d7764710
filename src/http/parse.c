/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From bytes to a request: llhttp's callbacks, and what llhttp lets pass but we do not: bare LF, folded headers, empty
 * header names, HTTP/0.9, other protocols, transfer codings but plain chunked, long trailers. One reading of a message
 * is the point: whatever another server or a proxy could read differently is refused (RFC 9112 sections 2.2, 5.2, 6.3).
 */
#include "http/conn.h"
#include "http/url.h"

static struct http_request *parser_request(const llhttp_t *parser)
{
    struct conn *c = parser->data;
    return c->req;
}

static int http_parse_refuse(struct http_request *req, int status, const char *text)
{
    if (!req->refuse_status) {
        req->refuse_status = status;
        req->refuse_text = text;
    }
    return -1;
}

static int parse_added(struct http_request *req, int r)
{
    const char *why;
    int status = r < 0 ? fields_status(r, &why) : 0;
    return status ? http_parse_refuse(req, status, why) : 0;
}

static int on_url(llhttp_t *parser, const char *p, size_t n)
{
    struct http_request *req = parser_request(parser);
    if (req->fields.line.n + n > req->conn->server->limits.url_bytes)
        return http_parse_refuse(req, 414, "the URL is too long");
    return parse_added(req, fields_add_line(&req->fields, p, n));
}

/* Trailers and chunk extensions: bounded, checked by llhttp, dropped. */
static int parse_skip(struct conn *c, size_t n)
{
    if (n >= TRAILER_MAX || (c->overhead += (uint32_t)n + 1) > TRAILER_MAX)
        return c->req ? http_parse_refuse(c->req, 400, "the trailers or chunk extensions are too long") : -1;
    return 0;
}

static int parse_on_field(llhttp_t *parser, const char *p, size_t n)
{
    struct http_request *req = parser_request(parser);
    return !req || req->head_complete ? parse_skip(parser->data, n)
                                      : parse_added(req, fields_add_name(&req->fields, p, n));
}

static int parse_on_field_complete(llhttp_t *parser)
{
    struct http_request *req = parser_request(parser);
    return !req || req->head_complete ? 0 : parse_added(req, fields_name_done(&req->fields));
}

static int parse_on_value(llhttp_t *parser, const char *p, size_t n)
{
    struct http_request *req = parser_request(parser);
    return !req || req->head_complete ? parse_skip(parser->data, n)
                                      : parse_added(req, fields_add_value(&req->fields, p, n));
}

/* "http://host/path" and another Host header: which of the two counts is what servers differ in (RFC 9112 section
 * 3.2.2). */
static bool is_for_other_host(const struct http_request *req, struct str host)
{
    struct str target = fields_line(&req->fields);
    if (target.p[0] == '/' || target.p[0] == '*')
        return false;
    target = str_sub(target, (size_t)str_find_char(target, ':') + strlen("://"));
    size_t n = 0;
    while (n < target.n && target.p[n] != '/' && target.p[n] != '?')
        n++;
    return !str_eq_nocase(str_n(target.p, n), host);
}

static const char *check_fields(struct http_request *req)
{
    unsigned hosts = 0, codings = 0;
    for (unsigned i = 0; i < req->fields.n; i++) {
        struct str name = fields_at(&req->fields, i).name, value = fields_at(&req->fields, i).value;
        if (str_eq_nocase(name, STR("host"))) {
            struct str host;
            uint16_t port;
            if (hosts++ || (value.n && str_split_host(value, &host, &port) < 0) || is_for_other_host(req, value))
                return "the Host header is not valid";
        } else if (str_eq_nocase(name, STR("transfer-encoding"))) {
            if (codings++ || req->http10 || !str_eq_nocase(value, STR("chunked")))
                return "the Transfer-Encoding is not supported";
        } else if (str_eq_nocase(name, STR("expect"))) {
            if (!str_eq_nocase(value, STR("100-continue")))
                return "the Expect header is not supported";
            req->expects_continue = !req->http10;
        }
    }
    return hosts || req->http10 ? NULL : "the Host header is missing";
}

static int parse_on_head(llhttp_t *parser)
{
    struct http_request *req = parser_request(parser);
    if (parser->http_major != 1)
        return http_parse_refuse(req, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    req->http10 = parser->http_minor == 0;
    if (parser->method == HTTP_CONNECT || parser->method >= HTTP_SOURCE)
        return http_parse_refuse(req, 501, "the method is not supported");
    if (url_split_target(fields_line(&req->fields), &req->path, &req->query) < 0)
        return http_parse_refuse(req, 400, "the URL is not valid");
    const char *wrong = check_fields(req);
    if (wrong)
        return http_parse_refuse(req, 400, wrong);

    bool chunked = parser->flags & F_CHUNKED;
    if (!chunked && parser->content_length > INT64_MAX)
        return http_parse_refuse(req, 413, "the body is too large");
    req->content_length = chunked ? -1 : (int64_t)parser->content_length;
    req->is_head = parser->method == HTTP_HEAD;
    req->upgrade = parser->upgrade && !req->http10;
    req->keep_alive = llhttp_should_keep_alive(parser);
    req->head_complete = true;
    /* Without a body the message's end follows at once, and is what this parse stops at. */
    return chunked || parser->content_length > 0 ? HPE_PAUSED : 0;
}

static int parse_on_body(llhttp_t *parser, const char *p, size_t n)
{
    struct conn *c = parser->data;
    struct http_request *req = c->req;
    if (n == 0)
        return 0;
    c->moved_in = true;
    if (!req)
        return 0;
    req->body_begun = true;
    if (req->reader == READER_STREAM) {
        req->ops->on_data(req, str_n(p, n), req->reader_ctx);
    } else if (req->room_fn && !req->room_fn(req->reader_ctx, n)) {
        buf_fini(&req->body);
    } else if (req->content_length == (int64_t)n && buf_len(&req->body) == 0) {
        /* All of it, in one piece: it stays where it is until the handler had it. */
        if (n > req->body.max)
            req->too_large = true;
        else
            req->body_view = str_n(p, n);
    } else if (buf_append(&req->body, p, n) < 0) {
        req->too_large = true;
    }
    /* Also after the handler ended the request in on_data. */
    c->stopped = (req->paused && req->reader == READER_STREAM) || req->aborted || req->ended || req->too_large;
    return c->stopped ? HPE_PAUSED : 0;
}

static int on_chunk(llhttp_t *parser)
{
    struct conn *c = parser->data;
    c->overhead = 0;
    return 0;
}

static int on_chunk_extension(llhttp_t *parser, const char *p UNUSED, size_t n)
{
    return parse_skip(parser->data, n);
}

static int parse_on_complete(llhttp_t *parser)
{
    struct conn *c = parser->data;
    c->message_done = true;
    if (c->req)
        c->req->body_complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t parse_settings = {
    .on_url = on_url,
    .on_header_field = parse_on_field,
    .on_header_field_complete = parse_on_field_complete,
    .on_header_value = parse_on_value,
    .on_headers_complete = parse_on_head,
    .on_body = parse_on_body,
    .on_chunk_header = on_chunk,
    .on_chunk_extension_name = on_chunk_extension,
    .on_chunk_extension_value = on_chunk_extension,
    .on_message_complete = parse_on_complete,
};

void parse_begin(struct conn *c)
{
    llhttp_init(&c->parser, HTTP_REQUEST, (llhttp_settings_t *)&parse_settings);
    c->parser.data = c;
    c->head_bytes = c->overhead = 0;
    c->message_done = c->stopped = false;
    c->last = '\n';
}

/* Lines end with CR LF, and none begins with a blank. `last` is the byte before p. */
static bool lines_are_strict(char last, const char *p, size_t n)
{
    for (const char *at = p, *end = p + n, *lf; at < end; at = lf + 1) {
        if ((at == p ? last == '\n' : true) && (*at == ' ' || *at == '\t'))
            return false;
        lf = memchr(at, '\n', (size_t)(end - at));
        if (!lf)
            return true;
        if ((lf == p ? last : lf[-1]) != '\r')
            return false;
    }
    return true;
}

bool parse_some(struct conn *c)
{
    struct http_request *req = c->req;
    bool in_head = c->state == CONN_HEAD;
    c->stopped = false;
    const char *p = c->cur.p ? c->cur.p : "";
    enum llhttp_errno r = llhttp_execute(&c->parser, p, c->cur.n);
    size_t used = c->cur.n;
    if (r != HPE_OK) {
        const char *pos = llhttp_get_error_pos(&c->parser);
        used = pos >= p && pos <= p + c->cur.n ? (size_t)(pos - p) : c->cur.n;
    }
    bool refused = false;
    if (r == HPE_PAUSED)
        llhttp_resume(&c->parser);
    else if (r != HPE_OK)
        refused = true;

    if (req && in_head && !refused) {
        c->head_bytes += (uint32_t)used;
        if (c->head_bytes > c->server->limits.header_bytes)
            refused = http_parse_refuse(req, 431, "the headers are too large") < 0;
        else if (!lines_are_strict(c->last, p, used))
            refused = http_parse_refuse(req, 400, "a line of the headers is malformed") < 0;
    }
    /* "0\r\n\n" is the one loose end of a chunked body that llhttp accepts. */
    if (!in_head && c->message_done && (c->parser.flags & F_CHUNKED) && used &&
        (p[used - 1] != '\n' || (used > 1 ? p[used - 2] : c->last) != '\r'))
        refused = true;
    if (refused && req)
        (void)http_parse_refuse(req, 400, in_head ? "this is not valid HTTP" : "the body's framing is not valid");
    if (used)
        c->last = p[used - 1];
    c->cur = str_n(p + used, c->cur.n - used);
    return !refused;
}

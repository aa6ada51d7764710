/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 * 1. The relay lives exactly as long as its request: it is freed in the request's on_close, and nowhere else. Functions
 *    of the request never call back, so nothing here is re-entered.
 * 2. Both messages are parsed and written anew; no framing byte of one side reaches the other (until a 101 makes both
 *    raw).
 * 3. `over` means that the upstream has nothing to say any more: the response is complete, refused or cut. What it
 *    still delivers is dropped, and the request's on_close is all that is left to come.
 */
#include "http/client/proxy.h"
#include "base/mem.h"
#include "http/fields.h"
#include "http/url.h"

#include <llhttp.h>

enum {
    HTTP_PROXY_MAGIC = 0x59585250,
    REQUEST_HEAD_MAX = 64 * 1024,
    ANSWER_HEAD_MAX = 32 * 1024,
    INTERIM_MAX = 1000,      /* answers with 1xx: the client sees none of them, so it doesn't slow them down */
    OVERHEAD_MAX = 8 * 1024, /* trailers, or the extensions of one chunk: likewise */
    BODILESS = 1             /* for llhttp: no body whatever the headers say */
};

struct http_proxy {
    uint32_t magic;
    struct http_request *req;
    const struct http_upstream_ops *ops;
    void *upstream;
    void (*on_bad_gateway)(struct http_request *req, int error, void *ctx);
    void (*on_done)(struct http_request *req, void *ctx);
    void *ctx;
    const char *const *hide;

    llhttp_t parser;
    struct fields fields;
    unsigned interim;
    size_t overhead;
    bool chunked; /* the request's body, as written upstream */
    bool asked_upgrade, upgraded, over;
    bool begun;  /* the response's head went to the client */
    bool paused; /* upstream, by us */
};

static void proxy_fail(struct http_proxy *p, int error)
{
    if (p->over)
        return;
    p->over = true;
    if (p->begun)
        http_abort(p->req);
    else if (p->on_bad_gateway)
        p->on_bad_gateway(p->req, error, p->ctx);
    else
        (void)http_respond_error(p->req, 502, "the server behind this address gave no valid answer");
}

static void write_upstream(struct http_proxy *p, const struct str *parts, size_t n)
{
    if (p->over && !p->upgraded)
        return;
    ssize_t queued = p->ops->write(p->upstream, parts, n);
    if (queued < 0)
        proxy_fail(p, (int)queued);
    else if (queued > HTTP_PROXY_HIGH)
        http_pause_body(p->req);
}

static void relay_to_client(struct http_proxy *p, struct str data)
{
    if (http_response_write(p->req, data) == -ENOBUFS) {
        proxy_fail(p, -ENOBUFS); /* an upstream that does not listen to pause() */
    } else if (http_response_full(p->req) && !p->paused) {
        p->paused = true;
        p->ops->pause(p->upstream);
    }
}

/* ---- the client's side ---- */

static void client_data(struct http_request *req UNUSED, struct str data, void *ctx)
{
    struct http_proxy *p = ctx;
    if (!p->chunked) {
        write_upstream(p, &data, 1);
        return;
    }
    char size_line[24];
    int n = snprintf(size_line, sizeof(size_line), "%zx\r\n", data.n);
    struct str parts[] = {str_n(size_line, (size_t)n), data, STR("\r\n")};
    write_upstream(p, parts, ARRAY_SIZE(parts));
}

static void client_end(struct http_request *req UNUSED, void *ctx)
{
    struct http_proxy *p = ctx;
    if (p->chunked)
        write_upstream(p, &STR("0\r\n\r\n"), 1);
}

static const struct http_body_ops body_ops = {.on_data = client_data, .on_end = client_end};

static void raw_data(struct http_request *req UNUSED, struct str data, void *ctx)
{
    write_upstream(ctx, &data, 1);
}

static void raw_end(struct http_request *req UNUSED, void *ctx)
{
    struct http_proxy *p = ctx;
    p->ops->end(p->upstream);
}

static const struct http_body_ops raw_ops = {.on_data = raw_data, .on_end = raw_end};

static void client_drained(struct http_request *req UNUSED, void *ctx)
{
    struct http_proxy *p = ctx;
    if (p->paused) {
        p->paused = false;
        p->ops->resume(p->upstream);
    }
}

static void client_closed(struct http_request *req, void *ctx)
{
    struct http_proxy *p = ctx;
    if (p->on_done)
        p->on_done(req, p->ctx);
    p->ops->close(p->upstream);
    fields_fini(&p->fields);
    p->magic = 0;
    mem_free(p);
}

/* ---- the upstream's side ---- */

static int proxy_on_begin(llhttp_t *parser)
{
    struct http_proxy *p = parser->data;
    fields_reset(&p->fields);
    return 0;
}

static int proxy_skip(llhttp_t *parser, const char *at UNUSED, size_t n)
{
    struct http_proxy *p = parser->data;
    p->overhead += n + 1;
    return p->overhead > OVERHEAD_MAX ? -1 : 0;
}

static int proxy_on_chunk(llhttp_t *parser)
{
    struct http_proxy *p = parser->data;
    p->overhead = 0;
    return 0;
}

static int proxy_on_field(llhttp_t *parser, const char *at, size_t n)
{
    struct http_proxy *p = parser->data;
    return p->begun ? proxy_skip(parser, at, n) : fields_add_name(&p->fields, at, n);
}

static int proxy_on_field_complete(llhttp_t *parser)
{
    struct http_proxy *p = parser->data;
    return p->begun ? proxy_skip(parser, NULL, 0) : fields_name_done(&p->fields);
}

static int proxy_on_value(llhttp_t *parser, const char *at, size_t n)
{
    struct http_proxy *p = parser->data;
    return p->begun ? proxy_skip(parser, at, n) : fields_add_value(&p->fields, at, n);
}

static bool proxy_names(const char *const *names, struct str name)
{
    for (; names && *names; names++) {
        if (str_eq_nocase(name, str_of(*names)))
            return true;
    }
    return false;
}

static size_t end_to_end(const struct http_proxy *p, struct http_header out[static FIELDS_MAX])
{
    struct http_header all[FIELDS_MAX];
    size_t n = 0;
    for (unsigned i = 0; i < p->fields.n; i++)
        all[i] = fields_at(&p->fields, i);
    for (unsigned i = 0; i < p->fields.n; i++) {
        if (!fields_is_hop_by_hop(all, p->fields.n, all[i].name) && !proxy_names(p->hide, all[i].name))
            out[n++] = all[i];
    }
    return n;
}

static int begin_raw(struct http_proxy *p)
{
    struct http_header headers[FIELDS_MAX + 1];
    struct str protocol = fields_get(&p->fields, STR("upgrade"));
    if (!p->asked_upgrade || !protocol.p)
        return -1;
    size_t n = end_to_end(p, headers);
    headers[n++] = HTTP_HEADER_STR("upgrade", protocol);
    if (http_upgrade(p->req, headers, n) < 0)
        return -1;
    p->begun = p->upgraded = true;
    p->chunked = false;
    http_resume_body(p->req);
    http_stream_body(p->req, &raw_ops, p);
    return HPE_PAUSED;
}

/* Of a coding that we don't undo, the client would take the bytes for the body: it isn't told of it. */
static bool has_other_coding(const struct http_proxy *p)
{
    for (unsigned i = 0; i < p->fields.n; i++) {
        struct http_header h = fields_at(&p->fields, i);
        if (str_eq_nocase(h.name, STR("transfer-encoding")) && !str_eq_nocase(h.value, STR("chunked")))
            return true;
    }
    return false;
}

static int proxy_on_head(llhttp_t *parser)
{
    struct http_proxy *p = parser->data;
    int status = parser->status_code;
    if (status == 101)
        return begin_raw(p);
    if (status < 100 || status > 999 || has_other_coding(p))
        return -1;
    if (status < 200)
        return ++p->interim > INTERIM_MAX ? -1 : BODILESS;
    bool head_only = http_method(p->req) == HTTP_METHOD_HEAD || status == 204 || status == 304;
    bool known =
        (parser->flags & F_CONTENT_LENGTH) && !(parser->flags & F_CHUNKED) && parser->content_length <= INT64_MAX;
    struct http_header headers[FIELDS_MAX];
    size_t n = end_to_end(p, headers);
    p->begun = true;
    (void)http_response_begin(p->req, status, headers, n, known ? (int64_t)parser->content_length : -1);
    return head_only ? BODILESS : 0;
}

static int proxy_on_body(llhttp_t *parser, const char *at, size_t n)
{
    struct http_proxy *p = parser->data;
    if (n && !p->over)
        relay_to_client(p, str_n(at, n));
    return 0;
}

static int proxy_on_complete(llhttp_t *parser)
{
    struct http_proxy *p = parser->data;
    if (!p->begun || p->upgraded)
        return 0; /* a 1xx */
    if (!p->over) {
        p->over = true;
        (void)http_response_end(p->req);
    }
    return HPE_PAUSED;
}

static const llhttp_settings_t proxy_settings = {
    .on_message_begin = proxy_on_begin,
    .on_header_field = proxy_on_field,
    .on_header_field_complete = proxy_on_field_complete,
    .on_header_value = proxy_on_value,
    .on_headers_complete = proxy_on_head,
    .on_body = proxy_on_body,
    .on_chunk_header = proxy_on_chunk,
    .on_chunk_extension_name = proxy_skip,
    .on_chunk_extension_value = proxy_skip,
    .on_message_complete = proxy_on_complete,
};

void http_proxy_feed(struct http_proxy *p, struct str data)
{
    assert(p->magic == HTTP_PROXY_MAGIC);
    if (!p->over && !p->upgraded && data.n) {
        enum llhttp_errno r = llhttp_execute(&p->parser, data.p, data.n);
        if (r != HPE_OK && r != HPE_PAUSED && r != HPE_PAUSED_UPGRADE) {
            proxy_fail(p, -EPROTO);
            return;
        }
        if (!p->upgraded)
            return;
        const char *rest = llhttp_get_error_pos(&p->parser);
        data = str_sub(data, (size_t)(rest - data.p));
    }
    if (p->upgraded && !p->over && data.n)
        relay_to_client(p, data);
}

void http_proxy_eof(struct http_proxy *p)
{
    assert(p->magic == HTTP_PROXY_MAGIC);
    if (p->over)
        return;
    if (p->upgraded) {
        p->over = true;
        (void)http_response_end(p->req);
    } else {
        (void)llhttp_finish(&p->parser); /* ends a body that goes until close, by proxy_on_complete() */
        proxy_fail(p, -EPIPE);
    }
}

void http_proxy_failed(struct http_proxy *p, int error)
{
    assert(p->magic == HTTP_PROXY_MAGIC);
    proxy_fail(p, error);
}

void http_proxy_writable(struct http_proxy *p)
{
    assert(p->magic == HTTP_PROXY_MAGIC);
    http_resume_body(p->req);
}

/* ---- the request upstream ---- */

static bool is_rewritten(const struct http_proxy_options *o, struct str name)
{
    return http_list_has(STR("host,content-length,expect"), name) ||
           (o->host.p && str_eq_nocase(name, STR("x-forwarded-host")));
}

static int proxy_append_request(struct http_proxy *p, const struct http_proxy_options *o, struct buf *b)
{
    struct http_request *req = p->req;
    size_t n = http_header_count(req);
    struct http_header *headers = arena_alloc(http_arena(req), (n + 1) * sizeof(*headers));
    for (size_t i = 0; i < n; i++)
        headers[i] = http_header_at(req, i);

    buf_append_str(b, http_method_name(req));
    buf_append_char(b, ' ');
    if (o->target.p) {
        struct str path, query;
        if (url_split_target(o->target, &path, &query) < 0 || path.p != o->target.p)
            return -EINVAL;
        buf_append_str(b, o->target);
    } else {
        buf_append_str(b, http_raw_path(req));
        if (http_query(req).n) {
            buf_append_char(b, '?');
            buf_append_str(b, http_query(req));
        }
    }
    buf_append_cstr(b, " HTTP/1.1\r\n");

    struct str host = http_header_get(req, "host");
    http_append_field(b, STR("Host"), o->host.p ? o->host : host);
    if (o->host.p && host.n)
        http_append_field(b, STR("x-forwarded-host"), host);
    for (size_t i = 0; i < n; i++) {
        struct str name = headers[i].name;
        if (!is_rewritten(o, name) && !proxy_names(o->drop, name) && !fields_is_hop_by_hop(headers, n, name))
            http_append_field(b, name, headers[i].value);
    }
    if (http_content_length(req) > 0 || (http_content_length(req) == 0 && http_header_get(req, "content-length").p))
        buf_printf(b, "content-length: %lld\r\n", (long long)http_content_length(req));
    if (p->chunked)
        buf_append_cstr(b, "transfer-encoding: chunked\r\n");
    if (p->asked_upgrade) {
        buf_append_cstr(b, "connection: upgrade\r\n");
        http_append_field(b, STR("upgrade"), http_header_get(req, "upgrade"));
    } else {
        buf_append_cstr(b, "connection: close\r\n");
    }
    buf_append(b, "\r\n", 2);
    return buf_error(b);
}

int http_proxy_start(struct http_request *req, const struct http_upstream_ops *ops, void *upstream,
                     const struct http_proxy_options *options, struct http_proxy **ret_proxy)
{
    if (options->host.p && !http_is_field_value(options->host))
        return -EINVAL;
    struct http_proxy *p = mem_new(struct http_proxy);
    p->magic = HTTP_PROXY_MAGIC;
    p->req = req;
    p->ops = ops;
    p->upstream = upstream;
    p->on_bad_gateway = options->on_bad_gateway;
    p->on_done = options->on_done;
    p->ctx = options->ctx;
    p->hide = options->hide;
    p->chunked = http_content_length(req) < 0;
    p->asked_upgrade = http_wants_upgrade(req);
    fields_init(&p->fields, FIELDS_MAX, ANSWER_HEAD_MAX);
    llhttp_init(&p->parser, HTTP_RESPONSE, (llhttp_settings_t *)&proxy_settings);
    p->parser.data = p;

    AUTO_BUF struct buf head = BUF_INIT(REQUEST_HEAD_MAX);
    if (proxy_append_request(p, options, &head) < 0) {
        fields_fini(&p->fields);
        mem_free(p);
        return -EINVAL;
    }
    http_on_close(req, client_closed, p);
    http_on_drain(req, client_drained, p);
    /* Reading also a body that is not there costs nothing and keeps one way through. */
    http_stream_body(req, &body_ops, p);
    struct str text = buf_str(&head);
    *ret_proxy = p;
    write_upstream(p, &text, 1);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a handler can ask of a request. Theory of operation: conn.h. */
#include "base/fd.h"
#include "http/conn.h"
#include "http/url.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum http_method http_method(const struct http_request *req)
{
    switch (request_conn(req)->parser.method) {
    case HTTP_GET:
        return HTTP_METHOD_GET;
    case HTTP_HEAD:
        return HTTP_METHOD_HEAD;
    case HTTP_POST:
        return HTTP_METHOD_POST;
    case HTTP_PUT:
        return HTTP_METHOD_PUT;
    case HTTP_PATCH:
        return HTTP_METHOD_PATCH;
    case HTTP_DELETE:
        return HTTP_METHOD_DELETE;
    case HTTP_OPTIONS:
        return HTTP_METHOD_OPTIONS;
    default:
        return HTTP_METHOD_OTHER;
    }
}

struct str http_method_name(const struct http_request *req)
{
    return str_of(llhttp_method_name(request_conn(req)->parser.method));
}

struct str http_raw_path(const struct http_request *req)
{
    (void)request_conn(req);
    return req->path;
}

struct str http_query(const struct http_request *req)
{
    (void)request_conn(req);
    return req->query;
}

struct str http_path(struct http_request *req)
{
    (void)request_conn(req);
    if (!req->path_decoded) {
        req->path_decoded = true;
        if (url_decode(&req->arena, req->path, URL_PATH, &req->decoded_path) < 0 || str_has_nul(req->decoded_path))
            req->decoded_path = STR_NULL;
    }
    return req->decoded_path;
}

int http_query_get(struct http_request *req, const char *name, struct str *ret_value)
{
    (void)request_conn(req);
    return url_query_get(&req->arena, req->query, name, ret_value);
}

struct str http_header_get(const struct http_request *req, const char *name)
{
    (void)request_conn(req);
    return fields_get(&req->fields, str_of(name));
}

size_t http_header_count(const struct http_request *req)
{
    (void)request_conn(req);
    return req->fields.n;
}

struct http_header http_header_at(const struct http_request *req, size_t i)
{
    (void)request_conn(req);
    return fields_at(&req->fields, (unsigned)i);
}

int64_t http_content_length(const struct http_request *req)
{
    (void)request_conn(req);
    return req->content_length;
}

bool http_wants_upgrade(const struct http_request *req)
{
    (void)request_conn(req);
    return req->upgrade;
}

bool http_is_tls(const struct http_request *req)
{
    return request_conn(req)->tls != NULL;
}

bool http_peer_is_in(const struct http_request *req, gid_t group)
{
    const struct conn *c = request_conn(req);
    return c->listener->is_unix && fd_peer_is_in(c->fd, group);
}

int http_peer_get(const struct http_request *req, struct http_peer *ret_peer)
{
    const struct conn *c = request_conn(req);
    struct http_peer peer = {.is_unix = c->listener->is_unix, .uid = (uid_t)-1, .gid = (gid_t)-1, .pid = -1};
    if (peer.is_unix) {
        struct ucred cred;
        socklen_t len = sizeof(cred);
        if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
            return -errno;
        peer.uid = cred.uid;
        peer.gid = cred.gid;
        peer.pid = cred.pid;
    } else {
        union {
            struct sockaddr any;
            struct sockaddr_in v4;
            struct sockaddr_in6 v6;
        } addr = {0};
        socklen_t len = sizeof(addr);
        char text[INET6_ADDRSTRLEN] = "";
        if (getpeername(c->fd, &addr.any, &len) < 0)
            return -errno;
        if (addr.any.sa_family == AF_INET6) {
            (void)inet_ntop(AF_INET6, &addr.v6.sin6_addr, text, sizeof(text));
            (void)snprintf(peer.address, sizeof(peer.address), "[%s]:%u", text, ntohs(addr.v6.sin6_port));
        } else {
            (void)inet_ntop(AF_INET, &addr.v4.sin_addr, text, sizeof(text));
            (void)snprintf(peer.address, sizeof(peer.address), "%s:%u", text, ntohs(addr.v4.sin_port));
        }
    }
    *ret_peer = peer;
    return 0;
}

struct arena *http_arena(struct http_request *req)
{
    (void)request_conn(req);
    return &req->arena;
}

void http_on_close(struct http_request *req, http_event_fn fn, void *ctx)
{
    (void)request_conn(req);
    req->on_close = fn;
    req->close_ctx = ctx;
}

void http_on_drain(struct http_request *req, http_event_fn fn, void *ctx)
{
    (void)request_conn(req);
    req->on_drain = fn;
    req->drain_ctx = ctx;
}

void http_count_queue(struct http_request *req, http_queue_fn fn, void *ctx)
{
    (void)request_conn(req);
    req->queue_fn = fn;
    req->queue_ctx = ctx;
}

void http_await_sent(struct http_request *req)
{
    (void)request_conn(req);
    req->awaits_sent = true;
}

void http_read_body(struct http_request *req, size_t max, http_room_fn room, http_body_fn fn, void *ctx)
{
    struct conn *c = request_conn(req);
    assert(req->reader == READER_NONE && !c->raw);
    req->reader = READER_WHOLE;
    req->room_fn = room;
    req->whole_fn = fn;
    req->reader_ctx = ctx;
    buf_init(&req->body, max);
    req->too_large = req->content_length > 0 && (uint64_t)req->content_length > max;
    conn_kick(c);
}

void http_stream_body(struct http_request *req, const struct http_body_ops *ops, void *ctx)
{
    struct conn *c = request_conn(req);
    assert(req->reader == READER_NONE && ops->on_data);
    req->reader = READER_STREAM;
    req->ops = ops;
    req->reader_ctx = ctx;
    conn_kick(c);
}

void http_watch_client(struct http_request *req, bool is_on)
{
    struct conn *c = request_conn(req);
    req->watches_client = is_on;
    conn_kick(c);
}

void http_pause_body(struct http_request *req)
{
    (void)request_conn(req);
    req->paused = true;
}

void http_resume_body(struct http_request *req)
{
    struct conn *c = request_conn(req);
    if (req->paused) {
        req->paused = false;
        conn_kick(c);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners, the epoll set, time-outs, the pool of request objects, shutdown. Theory of operation: conn.h. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "http/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS = 128,
    EVENTS_AT_ONCE = 8,
    ACCEPTS = 64,
    POOL_MAX = 64,
    POOL_HEAD_MAX = 4096,
    HEAD_BYTES_MAX = 64 * 1024,
    UNSENT_MAX = 128 * 1024
};

/* Connections are looked at for so long in one turn of the loop. */
#define TURN_USEC (10 * USEC_PER_MS)

const struct http_limits HTTP_LIMITS_DEFAULT = {
    .url_bytes = 8 * 1024,
    .header_bytes = 32 * 1024,
    .headers = 100,
    .heads_bytes = 64 << 20,
    .connections = 16384,
    .handshakes = 1024,
    .header_timeout_ms = 10 * 1000,
    .body_timeout_ms = 60 * 1000,
    .idle_timeout_ms = 620 * 1000,
    .write_timeout_ms = 120 * 1000,
    .write_high = 256 * 1024,
    .write_low = 64 * 1024,
    .write_max = 8 * 1024 * 1024,
};

struct http_request *request_new(struct conn *c)
{
    struct http_server *s = c->server;
    struct http_request *req = s->pool;
    if (req) {
        s->pool = req->next;
        s->n_pool--;
        memset(req, 0, offsetof(struct http_request, fields));
        fields_reset(&req->fields);
    } else {
        req = mem_new(struct http_request);
        fields_init(&req->fields, s->limits.headers, s->limits.header_bytes);
    }
    req->magic = HTTP_REQUEST_MAGIC;
    req->conn = c;
    req->added_tail = &req->added;
    return req;
}

static void request_free(struct http_request *req)
{
    fields_fini(&req->fields);
    mem_free(req);
}

void request_release(struct http_request *req)
{
    struct http_server *s = req->conn->server;
    req->magic = 0;
    req->conn = NULL;
    arena_fini(&req->arena);
    buf_fini(&req->body);
    if (s->n_pool >= POOL_MAX || req->fields.text.cap > POOL_HEAD_MAX) {
        request_free(req);
        return;
    }
    req->next = s->pool;
    s->pool = req;
    s->n_pool++;
}

const char *server_date(struct http_server *s)
{
    time_t now = time(NULL);
    if (now != s->date_second) {
        struct tm tm;
        s->date_second = now;
        if (!gmtime_r(&now, &tm) || strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", &tm) == 0)
            s->date[0] = 0;
    }
    return s->date;
}

static void reap(struct http_server *s)
{
    LIST_FOREACH (struct conn, c, &s->dead, node) {
        list_remove(&c->node);
        mem_free(c);
    }
}

static void handle_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;
    if (--s->handles || !uv_is_closing((uv_handle_t *)&s->epoll))
        return;
    LIST_FOREACH (struct listener, l, &s->listeners, node) {
        list_remove(&l->node);
        mem_free(l);
    }
    while (s->pool) {
        struct http_request *req = s->pool;
        s->pool = req->next;
        request_free(req);
    }
    (void)fd_close(s->epoll_fd);
    buf_fini(&s->head);
    MEM_FREE(s->read_buf, s->tls_record);
    void (*done)(void *) = s->on_closed;
    void *ctx = s->on_closed_ctx;
    mem_free(s);
    if (done)
        done(ctx);
}

static void server_close_handle(struct http_server *s, uv_handle_t *handle)
{
    handle->data = s;
    s->handles++;
    uv_close(handle, handle_closed);
}

static void listener_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    (void)fd_close(TAKE_FD(l->fd));
    handle->data = l->server;
    handle_closed(handle);
}

static void close_listeners(struct http_server *s)
{
    LIST_FOREACH (struct listener, l, &s->listeners, node) {
        if (uv_is_closing((uv_handle_t *)&l->poll))
            continue;
        s->handles++;
        uv_close((uv_handle_t *)&l->poll, listener_closed);
    }
}

/* Once the last connection of a closing server is gone. */
static void finish_close(struct http_server *s)
{
    if (!s->closing || s->n_conns || uv_is_closing((uv_handle_t *)&s->epoll))
        return;
    server_close_handle(s, (uv_handle_t *)&s->epoll);
    server_close_handle(s, (uv_handle_t *)&s->idle);
    server_close_handle(s, (uv_handle_t *)&s->timer);
}

/* Those that have been on their way for longest make room for others. */
static void server_trim_heads(struct http_server *s)
{
    struct conn *c;
    while (s->heads > s->limits.heads_bytes && (c = LIST_FIRST(struct conn, &s->timed[TIMED_HEAD], timed)))
        conn_drop(c);
}

static void server_on_idle(uv_idle_t *idle)
{
    struct http_server *s = idle->data;
    /* Those that are put on the list by these runs wait for the next turn. */
    struct list now;
    list_init(&now);
    if (!list_empty(&s->pending)) {
        now = s->pending;
        now.next->prev = &now;
        now.prev->next = &now;
        list_init(&s->pending);
    }
    usec_t until = clock_mono() + TURN_USEC;
    while (!list_empty(&now)) {
        struct conn *c = LIST_FIRST(struct conn, &now, pending);
        list_remove(&c->pending);
        conn_run(c);
        if (clock_mono() >= until)
            break;
    }
    server_trim_heads(s);
    while (!list_empty(&now)) { /* the first of the next turn */
        struct list *last = now.prev;
        list_remove(last);
        list_prepend(&s->pending, last);
    }
    reap(s);
    if (list_empty(&s->pending))
        uv_idle_stop(&s->idle);
    finish_close(s);
}

void server_schedule(struct http_server *s, struct conn *c)
{
    if (!list_empty(&c->pending))
        return;
    list_append(&s->pending, &c->pending);
    if (!uv_is_active((uv_handle_t *)&s->idle))
        uv_idle_start(&s->idle, server_on_idle);
}

void server_conn_gone(struct http_server *s, struct conn *c)
{
    list_remove(&c->pending);
    list_remove(&c->timed);
    list_remove(&c->node);
    list_append(&s->dead, &c->node);
    s->n_conns--;
}

static void on_epoll(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct http_server *s = poll->data;
    struct epoll_event ev[EVENTS_AT_ONCE];
    usec_t until = clock_mono() + TURN_USEC;
    int n, left = EVENTS;
    /* What was not fetched stays ready in the set, so the loop, which polls the set level-triggered, comes back for it
     * after its timers. */
    do {
        n = epoll_wait(s->epoll_fd, ev, EVENTS_AT_ONCE, 0);
        for (int i = 0; i < n; i++)
            conn_event(ev[i].data.ptr, ev[i].events);
        server_trim_heads(s);
        left -= EVENTS_AT_ONCE;
    } while (left && n == EVENTS_AT_ONCE && clock_mono() < until);
    reap(s);
    finish_close(s);
}

static void on_accept(uv_poll_t *poll, int status, int events);

static void server_on_timer(uv_timer_t *timer)
{
    struct http_server *s = timer->data;
    uint64_t now = uv_now(s->loop);
    for (int i = 0; i < TIMED_CLASSES; i++) {
        while (!list_empty(&s->timed[i])) {
            struct conn *c = LIST_FIRST(struct conn, &s->timed[i], timed);
            if (c->deadline > now)
                break;
            list_remove(&c->timed);
            c->timed_class = TIMED_NONE;
            conn_timeout(c, (enum timed)i);
        }
    }
    if (s->starved) {
        s->starved = false;
        LIST_FOREACH (struct listener, l, &s->listeners, node) {
            if (l->starved && !uv_is_closing((uv_handle_t *)&l->poll))
                uv_poll_start(&l->poll, UV_READABLE, on_accept);
            l->starved = false;
        }
    }
    reap(s);
    mem_trim_after(&s->crowd, s->n_conns);
    finish_close(s);
}

/*
 * Drops the connection that has been idle for longest; without one, one that only waits for its end; without one, the
 * one whose head has been on its way for longest, for whom opening connections and saying little costs nothing; without
 * one, the one that has taken nothing of an answer's last bytes for longest: to leave answers to whoever has no key
 * unread costs nothing either. One with a request that is being answered is never dropped. False: there are only those.
 */
static bool server_make_room(struct http_server *s)
{
    static const enum timed order[] = {TIMED_IDLE, TIMED_DISCARD,   TIMED_LINGER,
                                       TIMED_HEAD, TIMED_HANDSHAKE, TIMED_LAST};
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        struct conn *c = LIST_FIRST(struct conn, &s->timed[order[i]], timed);
        if (!c)
            continue;
        conn_drop(c);
        return true;
    }
    return false;
}

/* One connection too many: it is told so, as far as that works without waiting. */
static void turn_away(int fd)
{
    static const char text[] =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
        "connection: close\r\ncontent-length: 45\r\n\r\n"
        "{\"code\":503,\"message\":\"too many connections\"}";
    char drop[4096];
    (void)!recv(fd, drop, sizeof(drop), MSG_DONTWAIT); /* a close with unread input would reset the answer away */
    (void)!send(fd, text, sizeof(text) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    (void)!recv(fd, drop, sizeof(drop), MSG_DONTWAIT);
    (void)close(fd);
}

static void on_accept(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct listener *l = poll->data;
    struct http_server *s = l->server;
    for (int i = 0; i < ACCEPTS; i++) {
        /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno == EAGAIN)
                return;
            if ((errno == EMFILE || errno == ENFILE) && server_make_room(s))
                continue;
            /* Out of descriptors or memory: level-triggered polling would spin, so wait for the timer. */
            l->starved = s->starved = true;
            uv_poll_stop(poll);
            return;
        }
        if (s->n_conns < s->limits.connections || server_make_room(s))
            conn_open(s, l, fd);
        else if (l->tls)
            (void)close(fd);
        else
            turn_away(fd);
    }
}

struct http_server *http_server_new(uv_loop_t *loop, const struct http_limits *limits, http_request_fn on_request,
                                    void *ctx)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        return NULL;
    struct http_server *s = mem_new(struct http_server);
    s->loop = loop;
    s->limits = *limits;
    s->on_request = on_request;
    s->ctx = ctx;
    s->epoll_fd = epoll_fd;
    s->date_second = -1;
    if (uv_poll_init(loop, &s->epoll, epoll_fd) < 0) {
        (void)fd_close(epoll_fd);
        mem_free(s);
        return NULL;
    }
    s->read_buf = mem_alloc(READ_BODY);
    buf_init(&s->head, HEAD_BYTES_MAX);
    list_init(&s->listeners);
    list_init(&s->conns);
    list_init(&s->pending);
    list_init(&s->dead);
    for (int i = 0; i < TIMED_CLASSES; i++)
        list_init(&s->timed[i]);
    uint64_t least = MIN(MIN(limits->header_timeout_ms, limits->body_timeout_ms),
                         MIN(limits->idle_timeout_ms, limits->write_timeout_ms));
    s->tick_ms = MAX(MIN(least / 8, 500ULL), 5ULL);
    s->epoll.data = s->idle.data = s->timer.data = s;
    uv_idle_init(loop, &s->idle);
    uv_timer_init(loop, &s->timer);
    uv_poll_start(&s->epoll, UV_READABLE, on_epoll);
    uv_timer_start(&s->timer, server_on_timer, s->tick_ms, s->tick_ms);
    return s;
}

static int add_listener(struct http_server *s, int fd, const struct http_tls *tls)
{
    int domain = 0, yes = 1, keep_idle = 60, unsent = UNSENT_MAX;
    socklen_t len = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || fd_nonblock(fd, true) < 0) {
        int r = -errno;
        (void)fd_close(fd);
        return r;
    }
    struct listener *l = mem_new(struct listener);
    l->server = s;
    l->fd = fd;
    l->tls = tls;
    l->is_unix = domain == AF_UNIX;
    if (!l->is_unix) {
        /* Accepted sockets inherit these. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &keep_idle, sizeof(keep_idle));
        /* Else the kernel takes 4 MiB for each client that reads nothing, of memory that all TCP of the machine has. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    }
    int r = uv_poll_init(s->loop, &l->poll, fd);
    if (r < 0) {
        (void)fd_close(fd);
        mem_free(l);
        return r;
    }
    l->poll.data = l;
    list_append(&s->listeners, &l->node);
    return uv_poll_start(&l->poll, UV_READABLE, on_accept);
}

int http_server_listen(struct http_server *s, int fd)
{
    return add_listener(s, fd, NULL);
}

int http_server_listen_tls(struct http_server *s, int fd, const struct http_tls *tls)
{
    if (!s->tls_record)
        s->tls_record = mem_alloc(CONN_TLS_RECORD);
    return add_listener(s, fd, tls);
}

void http_server_drain(struct http_server *s)
{
    s->draining = true;
    close_listeners(s);
    LIST_FOREACH (struct conn, c, &s->conns, node) {
        conn_kick(c);
    }
}

void http_server_close(struct http_server *s, void (*done)(void *ctx), void *ctx)
{
    assert(!s->closing);
    s->closing = s->draining = true;
    s->on_closed = done;
    s->on_closed_ctx = ctx;
    close_listeners(s);
    LIST_FOREACH (struct conn, c, &s->conns, node) {
        conn_kick(c);
    }
    /* From the loop also when there is no connection. */
    uv_idle_start(&s->idle, server_on_idle);
}

unsigned http_server_connections(const struct http_server *s)
{
    return s->n_conns;
}

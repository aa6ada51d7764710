/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket to cove-api. A new one replaces the one before: what was not sent yet was for somebody who is gone. Answers are always kept until
 * they are sent; events are, up to a limit, and what had to be dropped is counted and said in the log. An event that may wait goes with the next
 * one that may not, or after SOON_MS, so that cove-api is not woken while a client still waits for its connection.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/internal.h"
#include "egress/requests.h"
#include "wire/egress.h"

#include <string.h>
#include <sys/socket.h>

enum {
    EVENTS_MAX = 4 << 20,
    QUEUE_MAX = 32 << 20,
    MESSAGES_PER_TURN = 64,
    BUFFER_BYTES = 4 << 20,
    SOON_MS = 50,
    SOON_BYTES = 64 * 1024
};

struct link_message {
    struct list node;
    size_t n;
    char text[];
};

struct link {
    struct egress *egress;
    struct link_connection *now; /* NULL: nobody */
    struct list queue;
    size_t queued;
    uint64_t dropped;
};

/* One socket; its handle may outlive its time as the current one by a turn. */
struct link_connection {
    struct link *link;
    uv_poll_t poll;
    int fd;
    bool wants_write;
};

static void link_on_poll(uv_poll_t *handle, int status, int events);

static void link_on_closed(uv_handle_t *handle)
{
    struct link_connection *c = container_of((uv_poll_t *)handle, struct link_connection, poll);
    (void)fd_close(c->fd);
    mem_free(c);
}

static void forget_queue(struct link *l)
{
    LIST_FOREACH (struct link_message, m, &l->queue, node) {
        list_remove(&m->node);
        mem_free(m);
    }
    l->queued = 0;
}

static void detach(struct link *l)
{
    struct link_connection *c = TAKE_PTR(l->now);
    if (!c)
        return;
    (void)uv_poll_stop(&c->poll);
    uv_close((uv_handle_t *)&c->poll, link_on_closed);
    forget_queue(l);
}

struct link *link_new(struct egress *e)
{
    struct link *l = mem_new(struct link);
    l->egress = e;
    list_init(&l->queue);
    (void)uv_timer_init(e->loop, &e->soon_timer);
    e->handles++;
    return l;
}

static void link_watch(struct link_connection *c)
{
    bool want = !list_empty(&c->link->queue);
    if (want == c->wants_write)
        return;
    c->wants_write = want;
    (void)uv_poll_start(&c->poll, want ? UV_READABLE | UV_WRITABLE : UV_READABLE, link_on_poll);
}

static void link_send_queue(struct link *l)
{
    struct link_message *m;
    while (l->now && (m = LIST_FIRST(struct link_message, &l->queue, node))) {
        ssize_t n = send(l->now->fd, m->text, m->n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR))
            break;
        if (n < 0) {
            detach(l);
            return;
        }
        list_remove(&m->node);
        l->queued -= m->n;
        mem_free(m);
    }
    if (list_empty(&l->queue))
        (void)uv_timer_stop(&l->egress->soon_timer);
    if (!l->now)
        return;
    if (l->dropped && list_empty(&l->queue)) {
        log_warn("%llu network events are lost: cove-api was gone or did not read them",
                 (unsigned long long)l->dropped);
        l->dropped = 0;
    }
    link_watch(l->now);
}

static void on_soon(uv_timer_t *timer)
{
    link_send_queue(container_of(timer, struct egress, soon_timer)->link);
}

/* Steals it. */
static void enqueue(struct link *l, json_t *object, bool event, bool soon)
{
    AUTO_FREE char *text = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    size_t n = text ? strlen(text) : 0;
    if (!text || n > EGRESS_MESSAGE_MAX || !l->now || (event && l->queued + n > EVENTS_MAX)) {
        l->dropped += event;
        if (!event)
            log_error("an answer to cove-api can't be sent");
        return;
    }
    if (l->queued + n > QUEUE_MAX) {
        log_error("cove-api does not read: its socket is closed");
        detach(l);
        return;
    }
    struct link_message *m = mem_alloc(sizeof(*m) + n);
    list_init(&m->node);
    m->n = n;
    memcpy(m->text, text, n);
    list_append(&l->queue, &m->node);
    l->queued += n;
    uv_timer_t *timer = &l->egress->soon_timer;
    if (!soon || l->queued > SOON_BYTES)
        link_send_queue(l);
    else if (!uv_is_active((uv_handle_t *)timer))
        (void)uv_timer_start(timer, on_soon, SOON_MS, 0);
}

void link_tell(struct link *l, json_t *event)
{
    enqueue(l, event, true, false);
}

void link_tell_soon(struct link *l, json_t *event)
{
    enqueue(l, event, true, true);
}

void link_answer(struct link *l, json_t *answer)
{
    enqueue(l, answer, false, false);
}

static bool read_one(struct link_connection *c, char *room)
{
    struct link *l = c->link;
    ssize_t n = recv(c->fd, room, EGRESS_MESSAGE_MAX, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0 || n > EGRESS_MESSAGE_MAX) {
        if (n > 0)
            log_error("cove-api sent a message that is too long");
        detach(l);
        return false;
    }
    json_error_t e;
    json_t *request = json_loadb(room, (size_t)n, JSON_REJECT_DUPLICATES, &e);
    bool understood = json_is_object(request) && requests_handle(l->egress, request);
    json_decref(request);
    mem_wipe(room, (size_t)n); /* "seal" brings what is secret */
    if (!understood) {
        log_error("cove-api sent an invalid message");
        detach(l);
    }
    return l->now == c;
}

static void link_on_poll(uv_poll_t *handle, int status, int events)
{
    struct link_connection *c = container_of(handle, struct link_connection, poll);
    struct link *l = c->link;
    if (status < 0) {
        detach(l);
        return;
    }
    if (events & UV_READABLE) {
        char *room = mem_alloc(EGRESS_MESSAGE_MAX);
        for (int i = 0; i < MESSAGES_PER_TURN && read_one(c, room); i++)
            ;
        mem_free(room);
    }
    if ((events & UV_WRITABLE) && l->now == c)
        link_send_queue(l);
}

void link_attach(struct link *l, int fd)
{
    static const int size = BUFFER_BYTES;
    detach(l);
    struct link_connection *c = mem_new(struct link_connection);
    c->link = l;
    c->fd = fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    int r = fd_nonblock(fd, true);
    r = r < 0 ? r : uv_poll_init(l->egress->loop, &c->poll, fd);
    if (r < 0) {
        log_error("watch cove-api's socket: %s", strerror(-r));
        (void)fd_close(fd);
        mem_free(c);
        return;
    }
    l->now = c;
    (void)uv_poll_start(&c->poll, UV_READABLE, link_on_poll);
    link_tell(l, json_pack("{s:s}", "op", "hello"));
}

static void on_timer_closed(uv_handle_t *timer)
{
    egress_handle_gone(container_of((uv_timer_t *)timer, struct egress, soon_timer));
}

void link_free(struct link *l)
{
    uv_close((uv_handle_t *)&l->egress->soon_timer, on_timer_closed);
    link_send_queue(l);
    detach(l);
    forget_queue(l);
    mem_free(l);
}

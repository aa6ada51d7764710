/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/packets.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "wire/egress.h"

#include <sys/socket.h>

enum {
    MESSAGES_PER_TURN = 64, /* then the others' turn, */
    TURN_USEC = 2000,       /* or when they took that long */
    BUFFER_BYTES = 4 << 20
};

struct packet {
    struct list node;
    size_t n;
    char text[];
};

/* Its handle may outlive its time as the current one by a turn. */
struct packets_socket {
    struct packets *packets;
    uv_poll_t poll;
    int fd;
    bool wants_write;
    char room[EGRESS_MESSAGE_MAX]; /* as much of it is memory as the longest message has filled */
};

static void packets_on_closed(uv_handle_t *handle)
{
    struct packets_socket *s = container_of((uv_poll_t *)handle, struct packets_socket, poll);
    (void)fd_close(s->fd);
    mem_free(s);
}

static void packet_free(struct packets *p, struct packet *m)
{
    list_remove(&m->node);
    p->queued -= m->n;
    mem_wipe(m->text, m->n);
    mem_free(m);
}

void packets_close(struct packets *p)
{
    struct packets_socket *s = TAKE_PTR(p->now);
    if (s) {
        (void)uv_poll_stop(&s->poll);
        uv_close((uv_handle_t *)&s->poll, packets_on_closed);
    }
    LIST_FOREACH (struct packet, m, &p->queue, node)
        packet_free(p, m);
}

static void packets_lose(struct packets *p, int error)
{
    packets_close(p);
    p->ops->on_lost(p->ctx, error);
}

void packets_put(struct packets *p, struct str text)
{
    struct packet *m = mem_alloc(sizeof(*m) + text.n);
    list_init(&m->node);
    m->n = text.n;
    memcpy(m->text, text.p, text.n);
    list_append(&p->queue, &m->node);
    p->queued += text.n;
}

static void packets_on_poll(uv_poll_t *handle, int status, int events);

void packets_send(struct packets *p)
{
    struct packet *m;
    while (p->now && (m = LIST_FIRST(struct packet, &p->queue, node))) {
        ssize_t n = send(p->now->fd, m->text, m->n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR))
            break;
        if (n < 0) {
            packets_lose(p, -errno);
            return;
        }
        packet_free(p, m);
    }
    struct packets_socket *s = p->now;
    bool wants_write = !list_empty(&p->queue);
    if (!wants_write && p->ops->on_sent)
        p->ops->on_sent(p->ctx);
    if (!s || wants_write == s->wants_write)
        return;
    s->wants_write = wants_write;
    (void)uv_poll_start(&s->poll, wants_write ? UV_READABLE | UV_WRITABLE : UV_READABLE, packets_on_poll);
}

static bool packets_read(struct packets_socket *s)
{
    struct packets *p = s->packets;
    ssize_t n = recv(s->fd, s->room, sizeof(s->room), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0 || n > EGRESS_MESSAGE_MAX) {
        packets_lose(p, n > 0 ? -EMSGSIZE : n < 0 ? -errno : 0);
        return false;
    }
    json_error_t why;
    json_t *message = json_loadb(s->room, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    bool is_understood = json_is_object(message) && p->ops->on_message(p->ctx, message);
    json_decref(message);
    mem_wipe(s->room, (size_t)n);
    if (!is_understood && p->now == s)
        packets_lose(p, -EBADMSG);
    return p->now == s;
}

static void packets_on_poll(uv_poll_t *handle, int status, int events)
{
    struct packets_socket *s = container_of(handle, struct packets_socket, poll);
    struct packets *p = s->packets;
    if (p->now != s)
        return;
    if (status < 0) {
        packets_lose(p, status);
        return;
    }
    usec_t until = clock_mono() + TURN_USEC;
    for (int i = 0; events & UV_READABLE && i < MESSAGES_PER_TURN && packets_read(s) && clock_mono() < until; i++)
        ;
    if ((events & UV_WRITABLE) && p->now == s)
        packets_send(p);
}

int packets_attach(struct packets *p, int fd)
{
    static const int size = BUFFER_BYTES;
    packets_close(p);
    struct packets_socket *s = mem_new(struct packets_socket);
    s->packets = p;
    s->fd = fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    int r = fd_nonblock(fd, true);
    r = r < 0 ? r : uv_poll_init(p->loop, &s->poll, fd);
    if (r < 0) {
        (void)fd_close(fd);
        mem_free(s);
        return r;
    }
    p->now = s;
    (void)uv_poll_start(&s->poll, UV_READABLE, packets_on_poll);
    return 0;
}

void packets_init(struct packets *p, uv_loop_t *loop, const struct packets_ops *ops, void *ctx)
{
    *p = (struct packets){.loop = loop, .ops = ops, .ctx = ctx};
    list_init(&p->queue);
}

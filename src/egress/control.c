/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/internal.h"
#include "wire/egress.h"

enum { ORDERS_PER_TURN = 64 };

struct control {
    struct egress *egress;
    uv_poll_t poll;
    int fd;
};

static void control_on_closed(uv_handle_t *handle)
{
    struct control *c = container_of((uv_poll_t *)handle, struct control, poll);
    (void)fd_close(c->fd);
    mem_free(c);
}

void control_stop(struct egress *e)
{
    struct control *c = TAKE_PTR(e->control);
    if (!c)
        return;
    (void)uv_poll_stop(&c->poll);
    uv_close((uv_handle_t *)&c->poll, control_on_closed);
}

/* After an order that makes no sense cove-egress ends: coved starts another one, and until then nothing goes out. */
static void control_lose(struct egress *e, const char *why)
{
    log_error("orders from coved: %s", why);
    control_stop(e);
    if (e->config.on_lost)
        e->config.on_lost(e->config.ctx);
}

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fds[i] = fd_close(fds[i]);
}

static bool obey(struct egress *e, const struct egress_order *o, int *fds, size_t n_fds)
{
    struct net *n;
    switch (o->type) {
    case EGRESS_NET:
        if (n_fds != EGRESS_NET_FDS || !id_is_sandbox(str_of(o->id)))
            return false;
        n = net_get(e, o->id, true);
        if (n)
            net_open(n, fds);
        else
            close_all(fds, n_fds);
        return true;
    case EGRESS_DROP:
        if (n_fds != 0)
            return false;
        n = net_get(e, o->id, false);
        if (n)
            net_drop(n);
        return true;
    case EGRESS_API:
        if (n_fds != 1)
            return false;
        link_attach(e->link, fds[0]);
        return true;
    default:
        return false;
    }
}

static void control_on_readable(uv_poll_t *handle, int status, int events UNUSED)
{
    struct control *c = container_of(handle, struct control, poll);
    struct egress *e = c->egress;
    if (status < 0) {
        control_lose(e, strerror(-status));
        return;
    }
    for (int i = 0; i < ORDERS_PER_TURN; i++) {
        struct egress_order o;
        int fds[EGRESS_NET_FDS];
        size_t n_fds = 0;
        ssize_t n = fd_recv(c->fd, &o, sizeof(o), fds, EGRESS_NET_FDS, &n_fds);
        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n <= 0) {
            control_lose(e, n == 0 ? "coved is gone" : strerror((int)-n));
            return;
        }
        if (n != sizeof(o) || memchr(o.id, 0, sizeof(o.id)) == NULL || !obey(e, &o, fds, n_fds)) {
            close_all(fds, n_fds);
            control_lose(e, "an order that makes no sense");
            return;
        }
    }
}

int control_start(struct egress *e, struct err *err)
{
    struct control *c = mem_new(struct control);
    c->egress = e;
    c->fd = e->config.control_fd;
    int r = fd_nonblock(c->fd, true);
    r = r < 0 ? r : uv_poll_init(e->loop, &c->poll, c->fd);
    if (r < 0) {
        (void)fd_close(c->fd);
        mem_free(c);
        return err_errno(err, r, "watch coved's socket");
    }
    e->control = c;
    r = uv_poll_start(&c->poll, UV_READABLE, control_on_readable);
    return r < 0 ? err_errno(err, r, "watch coved's socket") : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/outbox.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>

struct outbox_message {
    struct list node;
    int fds[OUTBOX_FDS_MAX]; /* owned */
    size_t n_fds, n;
    char bytes[];
};

void outbox_init(struct outbox *o)
{
    list_init(&o->messages);
    o->bytes = 0;
}

bool outbox_is_empty(const struct outbox *o)
{
    return list_empty(&o->messages);
}

static void outbox_drop(struct outbox *o, struct outbox_message *m)
{
    list_remove(&m->node);
    o->bytes -= sizeof(*m) + m->n;
    while (m->n_fds)
        (void)fd_close(m->fds[--m->n_fds]);
    mem_free(m);
}

void outbox_clear(struct outbox *o)
{
    LIST_FOREACH (struct outbox_message, m, &o->messages, node) {
        outbox_drop(o, m);
    }
}

static bool is_full(int r)
{
    return r == -EAGAIN || r == -ENOBUFS;
}

static int outbox_keep(struct outbox *o, const void *message, size_t n, const int *fds, size_t n_fds)
{
    assert(n_fds <= OUTBOX_FDS_MAX);
    if (n > OUTBOX_MAX || o->bytes + sizeof(struct outbox_message) + n > OUTBOX_MAX)
        return -ENOBUFS;
    struct outbox_message *m = mem_alloc(sizeof(*m) + n);
    list_init(&m->node);
    m->n_fds = 0;
    m->n = n;
    memcpy(m->bytes, message, n);
    list_append(&o->messages, &m->node);
    o->bytes += sizeof(*m) + n;
    for (; m->n_fds < n_fds; m->n_fds++) {
        m->fds[m->n_fds] = fcntl(fds[m->n_fds], F_DUPFD_CLOEXEC, 3);
        if (m->fds[m->n_fds] < 0) {
            int r = -errno;
            outbox_drop(o, m);
            return r;
        }
    }
    return 0;
}

int outbox_send(struct outbox *o, int sock, const void *message, size_t n, const int *fds, size_t n_fds)
{
    int r = outbox_is_empty(o) ? fd_send(sock, message, n, fds, n_fds) : -EAGAIN;
    return is_full(r) ? outbox_keep(o, message, n, fds, n_fds) : r;
}

int outbox_flush(struct outbox *o, int sock)
{
    struct outbox_message *m;
    while ((m = LIST_FIRST(struct outbox_message, &o->messages, node))) {
        int r = fd_send(sock, m->bytes, m->n, m->fds, m->n_fds);
        if (r < 0)
            return is_full(r) ? 0 : r;
        outbox_drop(o, m);
    }
    return 0;
}

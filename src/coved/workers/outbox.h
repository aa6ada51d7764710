/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on their way into a non-blocking seqpacket socket, in order. What it has no room for (a list of all that is
 * in the pool is longer than any socket's buffer) waits here, OUTBOX_MAX bytes of it at most.
 */
#pragma once

#include "base/list.h"

enum { OUTBOX_MAX = 32 << 20, OUTBOX_FDS_MAX = 4 };

struct outbox {
    struct list messages;
    size_t bytes; /* that wait, with what it takes to keep them */
};

void outbox_init(struct outbox *o);
void outbox_clear(struct outbox *o); /* what waits is never sent */
bool outbox_is_empty(const struct outbox *o);

/* Copies what must wait; fds stay the caller's. -ENOBUFS: too much does already. Or another -errno of the socket. */
int outbox_send(struct outbox *o, int sock, const void *message, size_t n, const int *fds, size_t n_fds) WARN_UNUSED;

/* As much as there is room for. When it is not empty then, the socket becomes writable some time. */
int outbox_flush(struct outbox *o, int sock) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/* The listening sockets: coved holds them, so that connections wait in their queues while the worker behind them is replaced. */
#pragma once

#include "base/err.h"

#include <sys/types.h>

struct config;

enum { LISTEN_MAX = 24 };

struct listener {
    int fd; /* owned; non-blocking, listening */
    bool is_unix;
};

struct listeners {
    struct listener at[LISTEN_MAX];
    size_t n;
    int run_fd; /* owned: where cove.sock is, on the host; -1: it was not made */
    dev_t dev;  /* of cove.sock, to know it again */
    ino_t ino;
};

/* All of the config's addresses ("localhost" style loopback v4 brings ::1 along when its port is free) and <run_dir>/cove.sock. */
int listen_open(const struct config *config, struct listeners *ret_listeners, struct err *err) WARN_UNUSED;

/* Removes cove.sock, too, unless somebody else's has taken its place. */
void listen_close(struct listeners *l);

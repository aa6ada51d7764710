/* SPDX-License-Identifier: Apache-2.0 */
/* The listening sockets: coved holds them, so that connections wait in their queues while the worker behind them is
 * replaced. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

struct config;

enum { LISTEN_MAX = 48 };

struct coved_listener {
    int fd; /* non-blocking, listening; owned unless it is the unix socket's */
    bool is_unix, is_tls;
};

/* Listening sockets of an earlier coved. They are used again for the same addresses. */
struct inherited {
    int fds[LISTEN_MAX + 1]; /* owned; -1: taken */
    size_t n;
};

void inherited_close(struct inherited *in); /* those that nobody has taken */

/* A listening unix socket. */
struct local_socket {
    int fd;     /* owned; non-blocking, listening; -1: none */
    int dir_fd; /* owned: where it is, on the host */
    const char *name;
    dev_t dev; /* to know it again */
    ino_t ino;
};

#define LOCAL_SOCKET_NONE ((struct local_socket){-1, -1, NULL, 0, 0})

/* group: (gid_t)-1: as it is. <dir>/<name>, in the place of one that was left there; name is borrowed. `in`: NULL where
 * there is nothing to inherit, here and below. */
int listen_local(const char *dir, const char *name, mode_t mode, uid_t owner, gid_t group, struct inherited *in,
                 struct local_socket *ret_socket, struct err *err) WARN_UNUSED;

/* Removes it, unless somebody else's has taken its place. */
void listen_local_close(struct local_socket *s);

struct listeners {
    struct coved_listener at[LISTEN_MAX];
    size_t n;
    struct local_socket local;   /* cove.sock; one of `at` borrows its descriptor */
    struct inherited *inherited; /* borrowed until all are open; NULL */
};

/*
 * After coved was killed, its addresses stay in use until its workers have ended, a moment later: a new coved waits for
 * them at most this long. It blocks while it waits; 0 is for a coved that already serves.
 */
#define LISTEN_PATIENCE (2 * USEC_PER_SEC)

/* The config's plain addresses ("localhost" style loopback v4 brings ::1 along when its port is free) and
 * <run_dir>/cove.sock. */
int listen_open(const struct config *config, usec_t patience, struct inherited *in, struct listeners *ret_listeners,
                struct err *err) WARN_UNUSED;

/* Adds the listeners with TLS: all of them, or none if one fails. */
int listen_open_tls(const struct config *config, usec_t patience, struct listeners *l, struct err *err) WARN_UNUSED;
void listen_close_tls(struct listeners *l);

void listen_close(struct listeners *l);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as coved sees it: an unprivileged process at the other end of one seqpacket socket, replaced when it dies.
 * The first replacement comes at once; one that dies young is replaced more slowly (after 100 ms, in the end 500), so
 * that a broken worker does not eat the machine, but never so slowly that clients wait for a second. One that hangs
 * (coved/workers/pulse.h) gets SIGABRT, 2 s later SIGKILL, and is replaced as one that died. Workers live where the
 * host's files and its network are.
 *
 * A worker outlives coved: it is the keeper's child (coved/workers/keeper.h), which holds coved's ends of its sockets,
 * so that the next coved goes on with it.
 */
#pragma once

#include "base/sha1.h"
#include "coved/loop.h"
#include "coved/workers/pulse.h"
#include "tier/stage.h"
#include "wire/supervisor.h"

struct cgroup_tree;
struct records;
struct worker;

/* Passed as two arguments: the option, and the descriptor's number followed by a suffix ("7:unix"). */
struct worker_fd {
    const char *option;
    int fd;
    const char *suffix;
};

struct worker_spec {
    const char *name;    /* its argv[0], and what messages call it */
    const char *program; /* path on the host */
    const char *control; /* the option that says which descriptor is its end of the socket */
    const struct worker_fd *fds;
    size_t n_fds;
    char *const *argv; /* the arguments after the descriptors; NULL-terminated */
    uid_t uid;
    const char *key; /* given through a pipe, as --key-fd; NULL: none */
    struct str pem;  /* given as a file in memory, as --tls-fd; p NULL: none */
    const struct stage *stage;
    struct cgroup_tree *cgroups; /* NULL: it stays in coved's group */
    const char *group;           /* its own, which is there */
    /*
     * A whole message of the right length for its type, and the descriptor that came along: yours, or -1. NULL: it has
     * nothing to say to us, and is replaced when it does.
     */
    void (*on_message)(void *ctx, const union sup_message *m, int fd);
    /* Told with each question. NULL: PULSE_FINE. */
    enum pulse_state (*state)(void *ctx);
    /* There is a new one, which knows nothing yet. */
    void (*on_start)(void *ctx);
    void (*on_adopt)(void *ctx); /* it was an earlier coved's, and may wait for answers of that one. May be NULL */
    struct records *records;
    uint32_t number;  /* in there */
    uint32_t version; /* of its messages: a worker that was started with another one is replaced */
    /* SHA1_BYTES: of what it is started with; a worker of an earlier coved with another one is replaced */
    const uint8_t *settings;
    void *ctx;
};

/* In a child: back to the host's files. 0 or -errno. */
int worker_go_to_host(const struct stage *s) WARN_UNUSED;

/* Everything is borrowed. Starts with the first worker_tick(). */
struct worker *worker_new(struct coved_loop *loop, const struct worker_spec *spec);
void worker_free(struct worker *w); /* NULL, here and where one is adopted or stopped: there is none, it is gone */

/* Before the first tick: goes on with the one that an earlier coved left, if there is one. */
void worker_adopt(struct worker *w);

/* fd (or -1) is sent along and stays the caller's. A worker that doesn't read its messages (coved/workers/outbox.h
 * bounds what waits) is killed and replaced. */
void worker_send(struct worker *w, const void *message, size_t n, int fd);
size_t worker_backlog(const struct worker *w); /* bytes that it has not read yet; SIZE_MAX: nobody is there to read */
void worker_send_fds(struct worker *w, const void *message, size_t n, const int *fds, size_t n_fds);

/* Once a turn: starts it when it is due. Returns when it wants to be called again. */
usec_t worker_tick(struct worker *w);

bool worker_runs(const struct worker *w);
bool worker_answers(const struct worker *w);       /* its loop has turned; one that was adopted counts as such */
unsigned worker_stillborn(const struct worker *w); /* so many in a row ended before theirs had */
bool worker_is_due(const struct worker *w);        /* it is to be replaced */
/* As SIGTERM would, but on purpose: it ends what it has under way, and the next one is started at once, by this
 * spec. */
void worker_replace(struct worker *w, const struct worker_spec *spec);
void worker_stop(struct worker *w); /* SIGTERM and no replacement; SIGKILL 5 s later */
bool worker_is_gone(const struct worker *w);

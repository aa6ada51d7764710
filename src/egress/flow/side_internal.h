/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all kinds of sides have in common; for side*.c and relay.c alone.
 *
 * want_read, want_write: the owner waits for on_readable, on_writable. A kind says so by side_tell_*(), which clear
 * them, from the loop only. Whoever calls a side_tell_*() looks at `closed` before it goes on with the side: the memory
 * stays until the handles are closed.
 */
#pragma once

#include "egress/flow/side.h"

struct side_kind {
    ssize_t (*read)(struct side *s, void *to, size_t room);
    ssize_t (*write)(struct side *s, const void *from, size_t n);
    void (*shut)(struct side *s);                /* when it is ready */
    void (*watch)(struct side *s);               /* want_read, want_write, the owner or `failure` changed */
    bool (*pending)(const struct side *s);       /* reading would give something that nothing below will tell of */
    bool (*flushed)(const struct side *s);       /* nothing that was written is kept here */
    void (*close)(struct side *s, bool abandon); /* descriptors and handles; memory of its own */
    void (*released)(struct side *s);            /* all handles are closed: frees s */
    int (*fd)(const struct side *s);
};

struct side {
    const struct side_kind *kind;
    uv_loop_t *loop;
    const struct side_ops *ops; /* NULL: nobody listens */
    void *ctx;
    uint64_t bytes_in, bytes_out;
    struct err *failure; /* owned; told once there is somebody to tell */
    struct side_linger *linger;
    uv_timer_t timer; /* until it is ready the time limit, then what has to come from the loop */
    unsigned handles; /* that are not closed yet */
    bool ready, ready_told, failure_told, closed, want_read, want_write, ended, shut;
};

void side_init(struct side *s, const struct side_kind *kind, uv_loop_t *loop, const struct side_ops *ops, void *ctx);

/* For each handle that a kind brings besides the timer: side_add_handle() when made, side_close_handle() in close().
 * data must be the side. */
void side_add_handle(struct side *s);
void side_close_handle(struct side *s, uv_handle_t *h);

void side_limit(struct side *s, uint64_t ms, uv_timer_cb cb); /* while it is not ready */
void side_become_ready(struct side *s);                       /* from the loop; tells */

/* Broken for good: the first failure stays. Told from the loop. */
void side_fail(struct side *s, const struct err *err);
void side_fail_errno(struct side *s, int errnum, const char *what);

void side_tell_readable(struct side *s);
void side_tell_writable(struct side *s);

/*
 * side_read() and side_write() into and out of a pipe that is empty, or has n bytes in it; for sides with a side_fd().
 * A write that took less than n is to be tried again: only -EAGAIN is followed by on_writable.
 */
ssize_t side_splice_in(struct side *s, int pipe, size_t n);
ssize_t side_splice_out(struct side *s, int pipe, size_t n);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of the wire to one agent: streams over one socket, with credit both ways. Internal to src/sandbox.
 * The theory of operation is in session.c; rule numbers in comments are those of wire/proto.h.
 */
#pragma once

#include "base/err.h"
#include "sandbox/loop.h"
#include "wire/frame.h"

struct pair;
struct session;
struct stream;

struct session_ops {
    void (*on_ready)(void *ctx); /* HELLO came */
    /* Once: end of file, a socket error, no HELLO in time, or a lie (violation). Streams still wait; close the
     * session. */
    void (*on_broken)(void *ctx, bool violation, const struct err *err);
    /* After session_close(): every stream has ended, and the session is gone. May be NULL. */
    void (*on_closed)(void *ctx);
};

/* Streams can be opened at once; what they say waits until the agent's HELLO. */
struct session *session_new(struct loop *loop, const struct session_ops *ops, void *ctx);
/* The host's HELLO (wire/proto.h); before the first stream. A variable without a name is left out. */
void session_greet(struct session *s, const char *attributes, const struct pair *env, size_t n_env);
void session_expect_in(struct session *s, unsigned hello_ms);              /* its HELLO; before it starts. Else 15 s */
int session_start(struct session *s, int fd, struct err *err) WARN_UNUSED; /* takes fd, also when it fails */

/*
 * Every open stream gets on_end with `why`: in a later turn, followed by on_closed, the only op that is still called;
 * or with session_drop() at once and without on_closed (never from within a callback of the session; after
 * session_close() it keeps that one's `why`).
 */
void session_close(struct session *s, const struct err *why);
void session_drop(struct session *s, const struct err *why);

/* The agent is frozen: no time-out of a stream goes on until it is thawed. */
void session_stand_still(struct session *s);
void session_go_on(struct session *s);

/* Nothing is sent to the agent until then: requests and data wait in order. Only for moments. */
void session_hold(struct session *s, bool holds);

bool session_is_ready(const struct session *s);
bool session_is_idle(const struct session *s); /* every stream has ended, or it is broken */

/*
 * Bytes from the agent; what the socket's reader calls, and the fuzzer. Returns false when the session is broken or
 * closed. Callbacks run from here, so it must not be called from one.
 */
bool session_input(struct session *s, const char *p, size_t n);

/*
 * The receiving side of a stream. An op that is NULL is a frame that the verb does not have: the agent that sends it
 * lies. `user` is what was given to stream_open(). A stream ends with exactly one on_end, or with stream_close() and no
 * call afterwards.
 */
struct stream_ops {
    void (*on_reply)(void *user, struct str head);
    void (*on_data)(void *user, uint8_t flags, struct str bytes); /* give back with stream_grant() */
    void (*on_eof)(void *user);
    void (*on_room)(void *user); /* after stream_send() took less than it was given. NULL: the host sends no data */
    void (*on_end)(void *user, struct str tail, const struct err *err); /* err NULL: success */
    bool whole;        /* one on_data is one frame; else pieces come as they arrive */
    bool long_lived;   /* the time-out covers only the time until on_reply; else it starts again with each frame */
    uint8_t flags_max; /* of DATA */
};

enum { SESSION_UNARY_MS = 30000 };

/* Begins a request in the loop's scratch buffer: follow with wire_put_*() and stream_open(). */
struct buf *session_request(struct session *s, enum wire_verb verb);

/* ERR_UNAVAILABLE (session gone), ERR_RESOURCE_EXHAUSTED (too many streams), ERR_INVALID_ARGUMENT (request too large).
 * timeout_ms 0: none. */
int stream_open(struct session *s, struct buf *request, const struct stream_ops *ops, void *user, unsigned timeout_ms,
                struct stream **ret_stream, struct err *err) WARN_UNUSED;
void stream_close(struct stream *st); /* NULL is fine */

void stream_grant(struct stream *st, size_t bytes, bool delivered);
size_t stream_send(struct stream *st, struct str bytes); /* as much as credit and the outbox allow */
void stream_eof(struct stream *st);

/*
 * In on_end: whether that is the agent's word. Not when we gave up on it, when it never came to a stream (st NULL), or
 * when what it said was refused by stream_violation().
 */
bool stream_was_answered(const struct stream *st);

/* What it said on this stream can't be: the session breaks. For callbacks that find a malformed head, tail or
 * record. */
void stream_violation(struct stream *st, const char *what);

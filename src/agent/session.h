/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of a session with the host: frames in and out, the table of streams, credit (wire/proto.h).
 *
 * Theory of operation
 *
 *  1. A verb (agent/verb.h) owns what a stream does; its object begins with struct agent_stream. The session owns the
 *     object: it ends with stream_end() or stream_fail(), or when the host closed it or the session is gone, and then
 *     the verb's fini() is called, once.
 *  2. Small frames are appended to `out`, which a well-behaved host keeps short. DATA is made only in a verb's
 *     produce(), which is called when `out` is nearly empty, one frame at a time, stream after stream. Streams that
 *     just became ready and those that go on wait in two lines, which take turns: a download delays another stream by a
 *     frame only, and however often others become ready, it goes on. Nothing piles up for a host that does not read.
 *  3. While `out` is long nothing is read from the host either, so requests can't pile answers up.
 *  4. DATA from the host is handed to the verb as it comes, in pieces of any size; every other frame is taken whole.
 *  5. A violation, or a lost connection, only marks the session as broken; session_settle(), outside of all callbacks,
 *     drops it. What is sent on a broken session goes nowhere.
 */
#pragma once

#include "agent/failure.h"
#include "agent/loop.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "wire/frame.h"

#include <sys/uio.h>

struct agent;
struct verb;

struct agent_session {
    struct agent *agent;
    struct loop_io io; /* fd -1: no session */
    struct buf in, out;
    struct map streams;              /* id -> struct agent_stream */
    struct list fresh, going;        /* streams with something to produce, who became ready and who goes on */
    bool going_next;                 /* whose turn it is */
    char *scratch;                   /* WIRE_PAYLOAD_MAX bytes for produce(), while there are streams */
    uint32_t data_stream, data_left; /* of the DATA frame that is coming in */
    size_t frame_at;                 /* of the frame that is being written at the end of `out` */
    bool greeted;                    /* the host's HELLO came */
    bool broken;
    bool woken;    /* WIRE_WAKE: the session is to begin anew over the same stream */
    bool is_still; /* since a WIRE_WAKE_SETTLE: no more is sent than its answer and what was before */
    size_t before_still;
    uint64_t nonce;
};

struct agent_stream {
    struct agent_session *session;
    const struct verb *verb;
    struct list ready; /* in session->fresh or going */
    uint32_t id;
    bool replied, got_eof;
    uint64_t credit;   /* bytes of DATA that may be sent */
    uint32_t window;   /* bytes of DATA that the host may send */
    uint32_t consumed; /* of those that came, not given back yet */
};

void session_init(struct agent_session *s, struct agent *agent);
void session_fini(struct agent_session *s);
void session_start(struct agent_session *s, int fd); /* takes fd; the session before is dropped */

/* Answers a WIRE_WAKE. */
void session_woken(struct agent_session *s, uint8_t what, uint64_t nonce);

/* Sends and produces as much as the host takes, drops a broken session. True: there is more to do right away. */
bool session_settle(struct agent_session *s);

/* Frames: begin, append values, commit. stream_head() is a REPLY; stream_tail() an END with success, its commit frees
 * the stream. */
struct buf *stream_head(struct agent_stream *s);
void stream_head_commit(struct agent_stream *s);
struct buf *stream_tail(struct agent_stream *s);
void stream_tail_commit(struct agent_stream *s);
void stream_reply(struct agent_stream *s); /* an empty head */
void stream_eof(struct agent_stream *s);   /* no more DATA from us */

/* The stream is gone afterwards. */
void stream_end(struct agent_stream *s); /* success, empty tail */
void stream_fail(struct agent_stream *s, const struct failure *f);
void stream_failf(struct agent_stream *s, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Asks for produce() to be called when there is room. */
void stream_ready(struct agent_stream *s);

/* For produce() only: how much one DATA frame may carry now (0 before the head), room for that much, and sending it. */
size_t stream_room(const struct agent_stream *s);
char *stream_scratch(struct agent_stream *s);
void stream_send(struct agent_stream *s, uint8_t flags, const struct iovec *iov, int n_iov);
void stream_send_bytes(struct agent_stream *s, const void *p, size_t n);

/* n bytes of the host's DATA were taken: gives credit for them back, in larger steps. */
void stream_consumed(struct agent_stream *s, size_t n);

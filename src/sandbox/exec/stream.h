/* SPDX-License-Identifier: Apache-2.0 */
/* What session*.c and stream.c share: the state of a session and of one stream, and the checks of what an agent says on
 * it. */
#pragma once

#include "base/map.h"
#include "sandbox/session/session.h"

struct session {
    struct loop *loop;
    const struct session_ops *ops;
    void *ctx;
    uv_poll_t poll; /* initialised when fd >= 0 */
    int fd;
    bool ready, broken, violation, closing, wants_write;
    bool stands_still, is_held;
    unsigned hello_ms; /* until HELLO */
    usec_t hello_left; /* while it stands still, of the time until HELLO */
    struct err why;
    struct map streams; /* id -> struct stream, from OPEN to END */
    uint32_t last_id;
    uint32_t useless; /* frames that are allowed and say nothing */
    struct buf outbox, partial;
    struct stream *data; /* whose DATA is coming in, data_left bytes of it */
    uint8_t data_flags;
    size_t data_left;
    struct list credits, starved;
    struct loop_job flush, room, broken_job, closed_job;
    struct loop_alarm hello;
};

struct stream {
    struct session *session;
    const struct stream_ops *ops;
    void *user;
    uint32_t id;
    unsigned timeout_ms;
    uint32_t recv_credit; /* what the agent may still send */
    uint32_t send_credit;
    uint32_t held; /* given to the user, not granted again */
    uint32_t due_delivered, due_plain;
    bool replied, agent_eof, host_eof, closed, ended;
    bool lied; /* what it said does not count */
    struct loop_alarm alarm;
    usec_t left; /* of the time-out while the session stands still; 0: none */
    struct list credit_node, starved_node;
};

enum { SESSION_OUTBOX_MAX = 8 << 20 };

/* session.c */
bool session_is_over(const struct session *s); /* broken or closing */
void session_break(struct session *s, bool violation, const char *fmt, ...) PRINTF_LIKE(3, 4);
void session_lie(struct session *s, uint32_t stream, const char *what);
void stream_arm(struct stream *st); /* starts its time-out again */
void stream_arm_in(struct stream *st, usec_t now, usec_t left);
void stream_free(struct stream *st);

/* session_in.c */
void session_on_poll(uv_poll_t *handle, int status, int events);

/* session_out.c */
void session_touch(struct session *s); /* there is something to send */
void session_send_now(struct session *s);
void session_write(struct session *s); /* what the socket takes of the outbox */
void session_flush_job(struct loop_job *job);
void session_room_job(struct loop_job *job);
void session_put_credits(struct session *s);
bool session_has_room(const struct session *s);
size_t session_send_data(struct session *s, uint32_t stream, struct str bytes);

/* Appends the CREDIT frames that are due. */
void stream_put_credit(struct stream *st, struct buf *out);

/*
 * Checks a frame against the stream's state and brings that up to date. Returns NULL, or what is wrong. The payload of
 * DATA may be missing: only its size is looked at.
 */
const char *stream_check_frame(struct stream *st, const struct wire_frame *f, struct str payload) WARN_UNUSED;

/* Decodes END. *ret_err: its code is ERR_OK on success. */
const char *stream_check_end(struct stream *st, struct str payload, struct str *ret_tail,
                             struct err *ret_err) WARN_UNUSED;

/* Makes text that came out of a sandbox fit for messages: at most size - 1 bytes, cut between characters; control
 * characters and what is not UTF-8 become '?'. Terminates. */
void text_clean(struct str s, char *ret_text, size_t size);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP/2 connection through cove-egress: h2.c moves it on, h2_request.c is what the client says, h2_answer.c what
 * upstream says, h2_stream.c what lies between.
 */
#pragma once

#include "base/list.h"
#include "egress/http/exchange_internal.h"

#include <nghttp2/nghttp2.h>

enum {
    H2_CLIENT_WINDOW = 256 * 1024, /* of a stream; the sandbox is near */
    H2_CLIENT_WINDOW_ALL = 512 * 1024,
    H2_UPSTREAM_WINDOW = 256 * 1024, /* the world is not */
    H2_UPSTREAM_WINDOW_ALL = 2 * 1024 * 1024,
    H2_FRAMES_BURST = 4000, /* frames that carry nothing: PING, SETTINGS, RST_STREAM, PRIORITY, empty DATA */
    H2_FRAMES_PER_S = 500,
    /* So much of a head that is too large is read, so that it can be answered. Beyond (a byte can stand for 4 KiB) its
     * stream is reset, and nghttp2 stops decoding it. */
    H2_LOOK_MAX = 4 * EXCHANGE_HEAD_MAX,
    H2_INFORMED_MAX = 32,           /* 1xx heads of one answer */
    H2_HEADS_MAX = 2 * 1024 * 1024, /* of a connection: of all heads that are being read, or wait to be sent */
    H2_HEADS_LEAST = 16 * 1024,     /* where all connections together keep too much; and then no more streams than: */
    H2_STREAMS_LEAST = 16,
    H2_STREAM_COST = 1024, /* what is kept of a stream whatever it carries, ours and nghttp2's */
};

struct h2;

/* What a header block is collected in. Blocks of one connection do not overlap, so each half has one; it is wiped when
 * the block was judged or relayed. */
struct h2_block {
    struct arena arena;
    int32_t id;  /* the stream */
    size_t kept; /* of x.heads */
    struct str method, scheme, authority, path, status, protocol, length;
    struct http_header *fields;
    size_t n, bytes;
    bool too_large, no_room; /* then nothing is in it */
};

/* One of the two connections. */
struct h2_half {
    struct h2 *h;
    struct exchange_end *end;
    nghttp2_session *session;
    unsigned frames; /* left of H2_FRAMES_BURST */
    uint64_t frames_at;
    struct h2_block block;
};

/* A body on its way from one half to the other; what is in it has not been given back to the sender's window yet. */
struct h2_flow {
    struct h2_stream *stream;
    struct h2_half *from, *to; /* from NULL: it is our own */
    struct buf body;
    size_t own;         /* the first bytes of it: not owed to that window */
    bool ended;         /* nothing comes behind what is in `body` */
    bool waiting;       /* nghttp2 was told that there is nothing to send now */
    uint64_t since;     /* if not: nghttp2 has taken nothing, of the loop's clock */
    struct arena arena; /* for trailers */
    struct http_header *trailers;
    size_t n_trailers, kept; /* kept: of x.heads */
};

/* A request that is asked about again when its body is there. */
struct h2_held {
    struct arena arena;
    struct exchange_head head;
    struct str scheme;
    bool has_length;
    uint64_t length;
    size_t kept; /* of x.heads */
};

struct h2_stream {
    struct list node;
    struct h2_held *held; /* owned; NULL: was judged */
    struct h2 *h;
    uint64_t id;
    int32_t client_id, upstream_id; /* 0: there is none (upstream), or no more */
    struct h2_flow up, down;
    unsigned informed;
    bool head_only, owed;
    bool answered;   /* with a final head: upstream's or ours */
    bool end_sent;   /* END_STREAM went to the client */
    bool reset_sent; /* to the client */
};

enum h2_phase { H2_OPENING, H2_IDLE, H2_READING_HEAD, H2_BUSY };

struct h2 {
    struct exchange x;
    struct h2_half client, upstream;
    struct list streams;
    unsigned n_streams;
    enum h2_phase phase;
    uint64_t until, look_at; /* of the loop's clock: for the phase; for streams that nobody takes */
    bool opened;             /* the client's SETTINGS came */
    bool head_open;          /* one of its header blocks has begun and not ended */
    bool leaving;       /* GOAWAY was sent to the client: no new streams, and the end when the old ones are through */
    bool upstream_gone; /* no use to ask it: `why` */
    char why[256];
};

/* h2_stream.c */
struct h2_stream *h2_stream_new(struct h2 *h, int32_t client_id);
void h2_stream_release(struct h2_stream *s); /* when neither half has it any more */
struct h2_stream *h2_stream_of(struct h2_half *half, int32_t id);
void h2_stream_free(struct h2_stream *s);
void h2_tell_answer(struct h2_stream *s, int status); /* when it is owed */
void h2_respond(struct h2_stream *s, int status, struct str text);
void h2_reset_client(struct h2_stream *s, uint32_t code);
void h2_drop_untaken(struct h2 *h, unsigned ms); /* resets streams of which the client has taken nothing for so long */
void h2_finish_client(struct h2_stream *s);      /* nobody takes the rest of a request whose answer is complete */

int h2_flow_add(struct h2_flow *f, struct str piece);
void h2_flow_end(struct h2_flow *f);
void h2_flow_drop(struct h2_flow *f);                     /* what is in it goes nowhere */
void h2_flow_replace(struct h2_flow *f, struct str body); /* what is in it, all of it given back already */
nghttp2_data_provider h2_flow_provider(struct h2_flow *f);

/* Keeps those trailers of the block that have a good name (NULL: all), until they were sent or the flow is dropped. */
void h2_flow_trailers(struct h2_flow *f, const struct h2_block *b, bool (*is_good)(struct str name));

/* Copies the head. False: there is no room for it. */
bool h2_hold(struct h2_stream *s, const struct exchange_head *head);
void h2_held_free(struct h2_stream *s);

void h2_block_begin(struct h2_half *half, int32_t id);
int h2_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                 const uint8_t *value, size_t n_value, uint8_t flags, void *ctx); /* into the block of its half */
void h2_block_end(struct h2_half *half);
nghttp2_nv h2_nv(struct str name, struct str value);

/* Heads between being given to nghttp2 (r: what it said to it) and being sent, or not. */
void h2_head_queued(struct h2 *h, const nghttp2_nv *nv, size_t n, int r);
void h2_head_gone(struct h2 *h, const nghttp2_frame *frame);
int h2_on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int why, void *ctx);

/* nghttp2's callbacks for each half; h2.c makes the sessions of them. */
void h2_request_callbacks(nghttp2_session_callbacks *c);
void h2_answer_callbacks(nghttp2_session_callbacks *c);

/* h2.c */
void h2_leave(struct h2 *h);
static inline struct h2_half *h2_half_of(void *ctx) /* of nghttp2's callbacks */
{
    return ctx;
}
int h2_on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *ctx); /* floods */

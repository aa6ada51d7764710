/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the server: a connection, its current request, and who may do what to them. Private to server.c, conn.c,
 * parse.c, request.c, response.c and tls*.c.
 *
 * Theory of operation
 *
 * 1. All connections are in one epoll set of the server's own, edge-triggered, for reading, writing and hang-ups at
 *    once; the set itself is one handle of the loop. A registration is never changed: what the kernel last said is kept
 *    in can_read, can_write, half_closed, and back-pressure is not looking at it. So pausing costs no system call, a
 *    hang-up is seen also while paused, and an idle connection is this struct and nothing else.
 * 2. conn_run() is the only place that reads, parses, calls handlers, ends requests and closes. It is entered from the
 *    loop only, for one connection at a time, and never from itself.
 * 3. The functions of http/request.h set state and may write to the socket; then they call conn_kick(), which makes
 *    conn_run() look again: at once when it is what called the handler, else from the next turn of the loop.
 * 4. Input that is not parsed yet is the run's `cur`, in the server's shared read buffer; what is left at the end of
 *    the run is kept in `in`. Reading happens only when cur is empty and somebody wants the bytes, so `in` never holds
 *    more than one read.
 * 5. A request exists from the first byte of its head until its on_close returned. Its parser state lives in the
 *    connection, because the rest of an unwanted body is skipped after the request ended.
 * 6. A connection that is closed stays on the server's dead list until the run and all events fetched with it are done.
 * 7. With TLS (tls_conn.c) the socket's bytes pass through OpenSSL; all else is the same. can_read then means that the
 *    socket or OpenSSL may have something, can_write that the socket takes something.
 */
#pragma once

#include "base/buf.h"
#include "base/list.h"
#include "http/fields.h"
#include "http/server.h"

#include <llhttp.h>
#include <sys/uio.h>

enum {
    READ_HEAD = 16 * 1024, /* while waiting for a head: bounds what pipelining makes us keep */
    READ_CHUNKED = 64 * 1024,
    READ_BODY = 256 * 1024,   /* size of the shared read buffer */
    WRITE_GATHER = 16 * 1024, /* less than this waits for the end of the turn */
    QUEUE_STEP = 16 * 1024,
    QUEUE_KEEP = 64 * 1024,   /* an empty queue keeps at most this much memory */
    DISCARD_MAX = 256 * 1024, /* an unwanted body up to this is read to keep the connection */
    LINGER_MS = 2000,
    LINGER_MAX = 64 * 1024 * 1024,
    TRAILER_MAX = 8 * 1024,      /* trailers, or the extensions of one chunk */
    CONN_TLS_RECORD = 16 * 1024, /* the most that TLS takes in one piece */
    RUN_READS = 8,               /* work of one run before others get their turn */
    RUN_REQUESTS = 32,
    RUN_CROWD = 32, /* with more connections than that each gets less of it, so that all together don't get more */
    HTTP_REQUEST_MAGIC = 0x52515448,
};

enum timed {
    TIMED_IDLE,
    TIMED_HEAD,
    TIMED_BODY,
    TIMED_HANDSHAKE,
    TIMED_DISCARD,
    TIMED_WRITE,
    TIMED_LAST, /* to write the last of an answer */
    TIMED_LINGER,
    TIMED_CLASSES,
    TIMED_NONE = TIMED_CLASSES
};

struct listener {
    struct list node;
    struct http_server *server;
    uv_poll_t poll;
    const struct http_tls *tls; /* borrowed; NULL: plain */
    int fd;
    bool is_unix, starved;
};

struct http_server {
    uv_loop_t *loop;
    struct http_limits limits;
    http_request_fn on_request;
    void *ctx;

    int epoll_fd;
    uv_poll_t epoll;
    uv_idle_t idle;   /* active while `pending` is not empty */
    uv_timer_t timer; /* looks at the heads of `timed` */
    uint64_t tick_ms;

    struct list listeners;
    struct list conns, pending, dead;
    struct list timed[TIMED_CLASSES]; /* each in order of its deadlines, because a class has one duration */
    unsigned n_conns, n_handshakes;
    size_t heads; /* bytes: of each connection's head_cost */
    size_t crowd; /* for mem_trim_after() */

    struct http_request *pool; /* linked by ->next */
    unsigned n_pool;
    char *read_buf;
    char *tls_record; /* CONN_TLS_RECORD, for one call at a time; NULL without a TLS listener */
    struct buf head;  /* where response heads are written, for one call at a time */
    char date[40];
    int64_t date_second;

    bool draining, closing, starved, running;
    unsigned handles; /* uv handles whose close callback is still to come */
    void (*on_closed)(void *ctx);
    void *on_closed_ctx;
};

enum conn_state {
    CONN_HANDSHAKE, /* TLS */
    CONN_HEAD,      /* between requests or inside a head; req is NULL before the first byte */
    CONN_ACTIVE,    /* the handler has the request */
    CONN_DISCARD,   /* the request is over, the rest of its body is skipped */
    CONN_LINGER,    /* our side is shut; reads until the client has seen that */
    CONN_DEAD,
};

struct conn {
    struct http_server *server;
    struct listener *listener;
    struct http_request *req;
    struct ssl_st *tls; /* owned; NULL: plain */
    struct list node, pending, timed;
    uint64_t deadline; /* ms of the loop */
    struct str cur;    /* during a run: input not parsed yet */
    struct buf in, out;
    llhttp_t parser;
    uint64_t skipped;  /* bytes discarded since the request ended, or while lingering */
    uint32_t overhead; /* bytes of this chunk's extensions, or of the trailers */
    int fd;
    uint32_t head_bytes;
    uint32_t head_cost;  /* memory of a head that is not complete */
    uint32_t tls_budget; /* see tls_conn.c */
    uint8_t state, timed_class;
    uint8_t reads_left, requests_left; /* of this run */
    char last;                         /* last byte parsed, for what llhttp lets pass */
    bool running : 1, again : 1;
    bool can_read : 1, can_write : 1, half_closed : 1, hung_up : 1, eof : 1;
    bool gone : 1;         /* nobody is there any more */
    bool refused : 1;      /* an answer of the server's own is in `out`; close behind it */
    bool message_done : 1; /* the parser is at a message's end */
    bool stopped : 1;      /* the parser stopped inside a body and may have something to say without further input */
    bool raw : 1;          /* after http_upgrade() */
    bool shut : 1;         /* our side is shut down */
    bool moved_in : 1, moved_out : 1; /* body bytes moved in this run, so that time-outs start again */
    bool notify_due : 1;              /* our side is to be shut, once there is room for TLS to say so */
    bool tls_begun : 1, tls_plain : 1, tls_ready : 1, tls_dry : 1, tls_broken : 1, tls_notified : 1; /* tls_conn.c */
};

enum body_reader { READER_NONE, READER_WHOLE, READER_STREAM };

struct added_header {
    struct added_header *next;
    struct http_header header;
};

struct http_request {
    uint32_t magic;
    struct conn *conn;
    struct http_request *next;
    struct arena arena;

    struct str path, query;  /* raw */
    struct str decoded_path; /* once asked for */
    int64_t content_length;
    bool keep_alive : 1, http10 : 1, is_head : 1, upgrade : 1, expects_continue : 1, path_decoded : 1;
    bool head_complete : 1, body_complete : 1, body_over : 1; /* over: its last callback was made or none is due */
    bool paused : 1, too_large : 1, body_begun : 1, timed_out : 1, watches_client : 1;

    bool responded : 1, ended : 1, aborted : 1; /* responded: the response's head exists */
    bool chunked : 1, until_close : 1, no_body : 1, was_high : 1, awaits_sent : 1;
    int refuse_status; /* the parser's wish: answer this and close */
    const char *refuse_text;
    uint64_t response_left;
    struct added_header *added, **added_tail;

    uint8_t reader;
    http_room_fn room_fn;
    http_body_fn whole_fn;
    const struct http_body_ops *ops;
    void *reader_ctx;
    struct buf body;      /* READER_WHOLE */
    struct str body_view; /* the whole body where it lies in the input, instead of in `body` */

    http_event_fn on_close, on_drain;
    void *close_ctx, *drain_ctx;
    http_queue_fn queue_fn;
    void *queue_ctx;
    size_t queue_counted;

    struct fields fields; /* kept from one to the next of the pool */
};

/* server.c */
struct http_request *request_new(struct conn *c);
void request_release(struct http_request *req);
void server_schedule(struct http_server *s, struct conn *c);
void server_conn_gone(struct http_server *s, struct conn *c); /* puts it on the dead list */
const char *server_date(struct http_server *s);

/* conn.c */
void conn_open(struct http_server *s, struct listener *l, int fd);
void conn_event(struct conn *c, uint32_t events);
void conn_run(struct conn *c);
void conn_head_over(struct conn *c);
void conn_kick(struct conn *c);
void conn_drop(struct conn *c); /* to make room: nothing is said */
void conn_timeout(struct conn *c, enum timed kind);

/* parse.c */
void parse_begin(struct conn *c);
/*
 * Parses c->cur, or 0 bytes of it: until the head or the message is complete, the handler paused, or the input is used
 * up. False: refuse with req->refuse_status.
 */
bool parse_some(struct conn *c);

/* response.c */
void conn_flush(struct conn *c);
void response_refuse(struct conn *c, int status, const char *text); /* queues an answer that no handler gave */
void response_continue(struct conn *c);

/* tls_conn.c */
struct bio_method_st *conn_tls_method(void); /* NULL: no memory */
int conn_tls_open(struct conn *c, const struct http_tls *tls) WARN_UNUSED;
enum conn_tls_step {
    CONN_TLS_READY,
    CONN_TLS_WAITS,
    CONN_TLS_PLAIN, /* the client speaks plain HTTP; what it sent is lost */
    CONN_TLS_FAILED,
};
enum conn_tls_step conn_tls_handshake(struct conn *c);
/* As recv() and sendmsg(), non-blocking, and they keep can_read and can_write. 0: the client said that it ends. */
ssize_t conn_tls_read(struct conn *c, void *to, size_t want) WARN_UNUSED;
ssize_t conn_tls_send(struct conn *c, const struct iovec *v, size_t n) WARN_UNUSED;
bool conn_tls_has_part(const struct conn *c); /* of a record, in a buffer of OpenSSL's */
bool conn_tls_notify(struct conn *c);         /* says that our side ends; false: again once can_write */
void conn_tls_close(struct conn *c);

static inline struct conn *request_conn(const struct http_request *req)
{
    assert(req && req->magic == HTTP_REQUEST_MAGIC);
    return req->conn;
}

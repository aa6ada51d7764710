/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/session.h"
#include "agent/agent.h"
#include "agent/exec/process.h"
#include "agent/verb.h"
#include "agent/wake.h"
#include "base/fd.h"
#include "base/mem.h"

#include <sys/epoll.h>
#include <unistd.h>

enum {
    OUT_MAX =
        8 * 1024 * 1024, /* never reached: beyond OUT_STOP only answers to requests that were taken before are added */
    OUT_STOP = 1024 * 1024,  /* no more requests are taken */
    OUT_PRODUCE = 64 * 1024, /* no more DATA is made */
    COPY_MAX = 8 * 1024,     /* DATA up to this is gathered in `out` with what goes before and after it */
    IN_SMALL = 16 * 1024,    /* one read while requests are expected */
    IN_LARGE = 128 * 1024,   /* one read while DATA comes */
    FRAMES_PER_TURN = 8,     /* before others than the session get their turn */
    SESSION_READS_PER_TURN = 8,
    CREDIT_STEP = WIRE_WINDOW / 4,
};

static void session_ready(struct loop_io *io, uint32_t events);
static void session_parse(struct agent_session *s);
static void session_greet(struct agent_session *s);

void session_init(struct agent_session *s, struct agent *agent)
{
    *s = (struct agent_session){
        .agent = agent,
        .io = LOOP_IO(session_ready),
        .in = BUF_INIT(WIRE_HEADER_SIZE + WIRE_PAYLOAD_MAX + IN_LARGE),
        .out = BUF_INIT(OUT_MAX),
    };
    list_init(&s->fresh);
    list_init(&s->going);
}

static void stream_free(struct agent_stream *st)
{
    struct agent_session *s = st->session;
    (void)map_del_u64(&s->streams, st->id);
    list_remove(&st->ready);
    if (st->verb->fini)
        st->verb->fini(st);
    mem_free(st);
}

/* Memory that only traffic needs. */
static void trim(struct agent_session *s)
{
    mem_free(TAKE_PTR(s->scratch));
    if (buf_len(&s->in) == 0 && s->in.cap > IN_SMALL)
        buf_fini(&s->in);
    if (buf_len(&s->out) == 0 && s->out.cap > IN_SMALL)
        buf_fini(&s->out);
}

static void agent_session_drop(struct agent_session *s)
{
    s->broken = true; /* what the verbs say while they are closed goes nowhere */
    MAP_FOREACH (struct agent_stream, st, &s->streams) {
        list_remove(&st->ready);
        if (st->verb->fini)
            st->verb->fini(st);
        mem_free(st);
    }
    process_session_gone(s->agent);
    loop_close(&s->agent->loop, &s->io);
    map_fini(&s->streams);
    buf_fini(&s->in);
    buf_fini(&s->out);
    trim(s);
    s->data_left = 0;
    s->broken = s->greeted = s->woken = false;
}

void session_fini(struct agent_session *s)
{
    agent_session_drop(s);
}

void session_start(struct agent_session *s, int fd)
{
    agent_session_drop(s);
    s->io.fd = fd;
    session_greet(s);
}

static void session_greet(struct agent_session *s)
{
    if (fd_nonblock(s->io.fd, true) < 0 || loop_set(&s->agent->loop, &s->io, EPOLLIN) < 0) {
        agent_session_drop(s);
        return;
    }
    size_t at = wire_begin(&s->out, WIRE_HELLO, 0, 0);
    wire_put_u32(&s->out, WIRE_VERSION);
    wire_end(&s->out, at);
}

static void session_say_woken(struct agent_session *s, uint8_t what, uint64_t nonce)
{
    size_t at = wire_begin(&s->out, WIRE_WAKE, 0, 0);
    wire_put_u8(&s->out, what);
    wire_put_u64(&s->out, nonce);
    wire_end(&s->out, at);
}

void session_woken(struct agent_session *s, uint8_t what, uint64_t nonce)
{
    s->woken |= what == WIRE_WAKE_SESSION;
    s->nonce = nonce;
    s->is_still = what == WIRE_WAKE_SETTLE || what == WIRE_WAKE_REHEARSE;
    if (s->is_still) {
        session_say_woken(s, what, nonce);
        s->before_still = buf_len(&s->out);
    }
}

/* The stream goes on where it is: a frame that was sent in part is sent to its end. */
static void session_again(struct agent_session *s)
{
    struct buf out = s->out, in = s->in; /* the memory of the latter is of use again */
    int fd = dup(s->io.fd);
    s->out = s->in = BUF_INIT(0);
    agent_session_drop(s);
    s->out = out;
    s->in = in;
    buf_clear(&s->in);
    session_say_woken(s, WIRE_WAKE_SESSION, s->nonce);
    s->io.fd = fd;
    session_greet(s);
}

/* Sends what is in `out`, as far as the socket takes it. */
static size_t session_sendable(const struct agent_session *s)
{
    return s->is_still ? MIN(s->before_still, buf_len(&s->out)) : buf_len(&s->out);
}

static void session_flush(struct agent_session *s)
{
    while (!s->broken && session_sendable(s)) {
        ssize_t r = write(s->io.fd, buf_data(&s->out), session_sendable(s));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0) {
            s->broken = s->broken || (errno != EAGAIN && errno != EWOULDBLOCK);
            return;
        }
        buf_consume(&s->out, (size_t)r);
        s->before_still -= MIN(s->before_still, (size_t)r);
    }
}

static bool has_ready(const struct agent_session *s)
{
    return !list_empty(&s->fresh) || !list_empty(&s->going);
}

static struct agent_stream *take_ready(struct agent_session *s)
{
    struct list *line = list_empty(&s->fresh) || (s->going_next && !list_empty(&s->going)) ? &s->going : &s->fresh;
    struct agent_stream *st = container_of(line->next, struct agent_stream, ready);
    s->going_next = line == &s->fresh;
    list_remove(&st->ready);
    return st;
}

bool session_settle(struct agent_session *s)
{
    if (s->io.fd < 0)
        return false;
    if (s->woken)
        session_again(s);
    bool was_stopped = buf_len(&s->out) >= OUT_STOP;
    int frames = 0;
    while (!s->broken && frames < FRAMES_PER_TURN && has_ready(s)) {
        if (buf_len(&s->out) >= OUT_PRODUCE)
            session_flush(s);
        if (buf_len(&s->out) >= OUT_PRODUCE)
            break;
        struct agent_stream *st = take_ready(s);
        frames++;
        if (st->verb->produce(st) && list_empty(&st->ready))
            list_append(&s->going, &st->ready);
    }
    session_flush(s);
    if (was_stopped && buf_len(&s->out) < OUT_STOP)
        session_parse(s); /* what had come before the stop */
    if (s->broken || buf_error(&s->out)) {
        agent_session_drop(s);
        return false;
    }
    if (map_count(&s->streams) == 0)
        trim(s);
    bool blocked = buf_len(&s->out) > 0;
    if (loop_set(&s->agent->loop, &s->io,
                 (buf_len(&s->out) < OUT_STOP ? EPOLLIN : 0u) | (session_sendable(s) ? EPOLLOUT : 0u)) < 0) {
        agent_session_drop(s);
        return false;
    }
    return !blocked && has_ready(s);
}

static void open_stream(struct agent_session *s, uint32_t id, struct str payload)
{
    struct wire_reader r = wire_reader_of(payload);
    uint8_t number = wire_get_u8(&r);
    const struct verb *verb = verb_get(number);
    if (map_get_u64(&s->streams, id) || map_count(&s->streams) >= WIRE_STREAMS_MAX) {
        s->broken = true;
        return;
    }
    if (!verb) {
        char text[64];
        size_t at = wire_begin(&s->out, WIRE_END, 0, id);
        wire_put_u16(&s->out, r.bad ? ERR_INVALID_ARGUMENT : ERR_UNIMPLEMENTED);
        (void)snprintf(text, sizeof(text), "the agent knows no verb %u", number);
        wire_put_str(&s->out, str_of(text));
        wire_end(&s->out, at);
        return;
    }
    struct agent_stream *st = mem_zalloc(verb->size);
    st->session = s;
    st->verb = verb;
    st->id = id;
    st->credit = st->window = WIRE_WINDOW;
    list_init(&st->ready);
    (void)map_put_u64(&s->streams, id, st);
    verb->open(st, &r);
}

static bool add_credit(struct agent_stream *st, uint32_t bytes, bool delivered)
{
    if (st->credit + bytes >= UINT64_C(1) << 63)
        return false;
    st->credit += bytes;
    if (st->verb->credit)
        st->verb->credit(st, bytes, delivered);
    else if (st->verb->produce)
        stream_ready(st);
    return true;
}

/* The host's HELLO. False: a violation. */
static bool take_hello(struct agent_session *s, struct str payload)
{
    struct agent *a = s->agent;
    char *hello = mem_alloc(payload.n + 1);
    memcpy(hello, payload.p, payload.n);
    struct wire_reader r = wire_reader_of(str_n(hello, payload.n));
    struct str attributes = wire_get_str(&r);
    uint32_t n_env = wire_get_count(&r, 8);
    struct str env = str_n(r.p, r.n);
    for (uint32_t i = 0; i < 2 * (uint64_t)n_env && !r.bad; i++)
        (void)wire_get_str(&r);
    if (s->greeted || map_count(&s->streams) || !wire_done(&r) || attributes.n > WIRE_ATTRIBUTES_MAX) {
        mem_free(hello);
        return false;
    }
    s->greeted = true;
    mem_free(a->hello);
    a->hello = hello;
    a->attributes = attributes.n ? attributes : STR(WIRE_ATTRIBUTES);
    a->env = env;
    a->n_env = n_env;
    return true;
}

/* A frame other than DATA. False: a violation. */
static bool session_take_frame(struct agent_session *s, const struct wire_frame *f, struct str payload)
{
    struct agent_stream *st = map_get_u64(&s->streams, f->stream);
    struct wire_reader r = wire_reader_of(payload);
    if (f->stream == 0)
        return (f->type == WIRE_HELLO && take_hello(s, payload)) ||
               (f->type == WIRE_WAKE && wake_told(s->agent, payload));
    switch (f->type) {
    case WIRE_OPEN:
        open_stream(s, f->stream, payload);
        return true;
    case WIRE_CREDIT: {
        uint32_t bytes = wire_get_u32(&r);
        bool delivered = f->flags & WIRE_CREDIT_DELIVERED;
        if (wire_done(&r) && !st)
            process_late_credit(s->agent, f->stream, bytes, delivered);
        return wire_done(&r) && (!st || add_credit(st, bytes, delivered));
    }
    case WIRE_EOF:
        if (payload.n || (st && st->got_eof))
            return false;
        if (st) {
            st->got_eof = true;
            if (st->verb->eof)
                st->verb->eof(st);
        }
        return true;
    case WIRE_CLOSE:
        if (st)
            stream_failf(st, ERR_CANCELED, "closed");
        return payload.n == 0;
    default:
        return false;
    }
}

/* The header of a DATA frame; its payload follows as it comes. */
static bool begin_data(struct agent_session *s, const struct wire_frame *f)
{
    struct agent_stream *st = map_get_u64(&s->streams, f->stream);
    if (f->stream == 0 || (st && (!st->verb->data || st->got_eof || f->size > st->window)))
        return false;
    if (st)
        st->window -= f->size;
    s->data_stream = f->stream;
    s->data_left = f->size;
    return true;
}

static void take_data(struct agent_session *s)
{
    size_t n = MIN(buf_len(&s->in), (size_t)s->data_left);
    struct agent_stream *st = map_get_u64(&s->streams, s->data_stream);
    s->data_left -= (uint32_t)n;
    if (st)
        st->verb->data(st, str_n(buf_data(&s->in), n));
    buf_consume(&s->in, n);
}

static void session_parse(struct agent_session *s)
{
    struct wire_frame f;
    while (!s->broken && buf_len(&s->in) && buf_len(&s->out) < OUT_STOP) {
        if (s->data_left) {
            take_data(s);
            continue;
        }
        if (buf_len(&s->in) < WIRE_HEADER_SIZE)
            break;
        if (wire_header_get((const uint8_t *)buf_data(&s->in), &f) < 0) {
            s->broken = true;
            break;
        }
        if (f.type == WIRE_DATA) {
            buf_consume(&s->in, WIRE_HEADER_SIZE);
            s->broken = !begin_data(s, &f);
            continue;
        }
        if (buf_len(&s->in) < WIRE_HEADER_SIZE + f.size)
            break;
        if (!session_take_frame(s, &f, str_n(buf_data(&s->in) + WIRE_HEADER_SIZE, f.size)))
            s->broken = true;
        buf_consume(&s->in, WIRE_HEADER_SIZE + f.size);
    }
}

/* How much to ask the socket for: small requests share a page, a large frame gets all its room at once. */
static size_t read_size(const struct agent_session *s)
{
    struct wire_frame f;
    if (s->data_left)
        return IN_LARGE;
    if (buf_len(&s->in) >= WIRE_HEADER_SIZE && wire_header_get((const uint8_t *)buf_data(&s->in), &f) == 0 &&
        f.type != WIRE_DATA)
        return MAX(WIRE_HEADER_SIZE + f.size - MIN(buf_len(&s->in), (size_t)WIRE_HEADER_SIZE + f.size),
                   (size_t)IN_SMALL);
    return IN_SMALL;
}

static void session_ready(struct loop_io *io, uint32_t events)
{
    struct agent_session *s = container_of(io, struct agent_session, io);
    for (int i = 0;
         i < SESSION_READS_PER_TURN && (events & ~(uint32_t)EPOLLOUT) && !s->broken && buf_len(&s->out) < OUT_STOP;
         i++) {
        size_t room = read_size(s);
        char *to = buf_reserve(&s->in, room);
        ssize_t r = to ? read(io->fd, to, room) : -1;
        if (r <= 0) {
            s->broken = r == 0 || !to || (errno != EAGAIN && errno != EINTR);
            return;
        }
        buf_commit(&s->in, (size_t)r);
        session_parse(s);
        if ((size_t)r < room)
            return;
    }
}

static struct buf *session_begin(struct agent_stream *st, uint8_t type)
{
    st->session->frame_at = wire_begin(&st->session->out, type, 0, st->id);
    return &st->session->out;
}

struct buf *stream_head(struct agent_stream *s)
{
    assert(!s->replied);
    s->replied = true;
    return session_begin(s, WIRE_REPLY);
}

static void session_commit(struct agent_stream *s)
{
    wire_end(&s->session->out, s->session->frame_at);
}

void stream_head_commit(struct agent_stream *s)
{
    session_commit(s);
}

struct buf *stream_tail(struct agent_stream *s)
{
    struct buf *b = session_begin(s, WIRE_END);
    wire_put_u16(b, ERR_OK);
    wire_put_str(b, STR_NULL);
    return b;
}

void stream_tail_commit(struct agent_stream *s)
{
    session_commit(s);
    stream_free(s);
}

void stream_reply(struct agent_stream *s)
{
    (void)stream_head(s);
    stream_head_commit(s);
}

void stream_eof(struct agent_stream *s)
{
    (void)session_begin(s, WIRE_EOF);
    session_commit(s);
}

void stream_end(struct agent_stream *s)
{
    (void)stream_tail(s);
    stream_tail_commit(s);
}

void stream_fail(struct agent_stream *s, const struct failure *f)
{
    struct buf *b = session_begin(s, WIRE_END);
    wire_put_u16(b, err_pack(f->code, f->reason));
    wire_put_str(b, str_of(f->text));
    stream_tail_commit(s);
}

void stream_failf(struct agent_stream *s, enum err_code code, const char *fmt, ...)
{
    struct failure f = {.code = code};
    FORMAT_ARGS(f.text, fmt);
    stream_fail(s, &f);
}

void stream_malformed(struct agent_stream *s)
{
    stream_failf(s, ERR_INVALID_ARGUMENT, "malformed request");
}

void stream_ready(struct agent_stream *s)
{
    if (list_empty(&s->ready))
        list_append(&s->session->fresh, &s->ready);
}

size_t stream_room(const struct agent_stream *s)
{
    return s->replied ? (size_t)MIN(s->credit, (uint64_t)WIRE_PAYLOAD_MAX) : 0;
}

char *stream_scratch(struct agent_stream *s)
{
    if (!s->session->scratch)
        s->session->scratch = mem_alloc(WIRE_PAYLOAD_MAX);
    return s->session->scratch;
}

void stream_send(struct agent_stream *s, uint8_t flags, const struct iovec *iov, int n_iov)
{
    struct agent_session *se = s->session;
    uint8_t header[WIRE_HEADER_SIZE];
    struct iovec all[4] = {{header, sizeof(header)}};
    size_t n = 0, sent = 0;
    assert(n_iov < (int)ARRAY_SIZE(all));
    for (int i = 0; i < n_iov; i++) {
        all[i + 1] = iov[i];
        n += iov[i].iov_len;
    }
    assert(n <= stream_room(s));
    s->credit -= n;
    wire_header_put(&(struct wire_frame){.size = (uint32_t)n, .stream = s->id, .type = WIRE_DATA, .flags = flags},
                    header);
    if (n > COPY_MAX) {
        session_flush(se);
        if (!se->broken && buf_len(&se->out) == 0) {
            ssize_t r = writev(se->io.fd, all, n_iov + 1);
            if (r < 0 && errno != EAGAIN && errno != EINTR)
                se->broken = true;
            sent = r < 0 ? 0 : (size_t)r;
        }
    }
    for (int i = 0; i <= n_iov; i++) {
        size_t skip = MIN(sent, all[i].iov_len);
        (void)buf_append(&se->out, (char *)all[i].iov_base + skip, all[i].iov_len - skip);
        sent -= skip;
    }
}

void stream_send_bytes(struct agent_stream *s, const void *p, size_t n)
{
    stream_send(s, 0, &(struct iovec){(void *)(uintptr_t)p, n}, 1);
}

void stream_consumed(struct agent_stream *s, size_t n)
{
    s->consumed += (uint32_t)n;
    if (s->consumed < CREDIT_STEP)
        return;
    struct buf *b = session_begin(s, WIRE_CREDIT);
    wire_put_u32(b, s->consumed);
    session_commit(s);
    s->window += s->consumed;
    s->consumed = 0;
}

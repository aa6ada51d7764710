/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of a session, fed with what a host should never send, in pieces. It must answer by the rules of
 * wire/proto.h. The verbs are those that touch processes, of which there are none and none can be started, and some
 * that live here and move bytes both ways.
 */
#include "agent/agent.h"
#include "agent/exec/process.h"
#include "agent/verb.h"
#include "base/fd.h"
#include "base/mem.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct echo {
    struct agent_stream stream;
    struct buf bytes;
};

static struct echo *echo_of(struct agent_stream *s)
{
    return container_of(s, struct echo, stream);
}

static void echo_open(struct agent_stream *s, struct wire_reader *r)
{
    buf_init(&echo_of(s)->bytes, WIRE_WINDOW);
    (void)r;
    stream_reply(s);
}

static void echo_data(struct agent_stream *s, struct str bytes)
{
    if (buf_append_str(&echo_of(s)->bytes, bytes) < 0)
        abort(); /* more than the window */
    stream_ready(s);
}

static void echo_eof(struct agent_stream *s)
{
    stream_ready(s);
}

static void echo_credit(struct agent_stream *s, uint32_t bytes, bool delivered)
{
    (void)bytes;
    (void)delivered;
    stream_ready(s);
}

static bool echo_produce(struct agent_stream *s)
{
    struct buf *b = &echo_of(s)->bytes;
    size_t n = MIN(stream_room(s), MIN(buf_len(b), (size_t)50000));
    if (n) {
        stream_send_bytes(s, buf_data(b), n);
        buf_consume(b, n);
        stream_consumed(s, n);
        return true;
    }
    if (s->got_eof && buf_len(b) == 0)
        stream_end(s);
    return false;
}

static void echo_fini(struct agent_stream *s)
{
    buf_fini(&echo_of(s)->bytes);
}

static void refuse_data(struct agent_stream *s, struct str bytes)
{
    stream_failf(s, ERR_INTERNAL, "no room for %zu bytes", bytes.n);
}

static const struct verb echo = {sizeof(struct echo), echo_open,    echo_data, echo_eof,
                                 echo_credit,         echo_produce, echo_fini};
static const struct verb refusing = {
    .size = sizeof(struct echo), .open = echo_open, .data = refuse_data, .fini = echo_fini};

/* In place of the agent's own table: its other verbs are not even linked. */
const struct verb *verb_get(uint8_t number)
{
    static const struct verb *const verbs[] = {&echo,     &verb_exec,        &verb_attach, &verb_processes, &verb_input,
                                               &refusing, &verb_close_stdin, &verb_signal, &verb_resize};
    return number < ARRAY_SIZE(verbs) ? verbs[number] : NULL;
}

static struct agent agent;

static void check(struct buf *in)
{
    struct wire_frame f;
    while (buf_len(in) >= WIRE_HEADER_SIZE) {
        if (wire_header_get((const uint8_t *)buf_data(in), &f) < 0)
            abort();
        if (buf_len(in) < WIRE_HEADER_SIZE + f.size)
            return;
        if (f.type == WIRE_OPEN || f.type == WIRE_CLOSE || (f.stream == 0) != (f.type == WIRE_HELLO))
            abort();
        buf_consume(in, WIRE_HEADER_SIZE + f.size);
    }
}

static void turn(int host, struct buf *in)
{
    for (int i = 0; i < 3; i++) {
        if (loop_turn(&agent.loop, true) < 0)
            abort();
        (void)session_settle(&agent.session);
        char *to = buf_reserve(in, 512 * 1024);
        ssize_t n = to ? recv(host, to, 512 * 1024, MSG_DONTWAIT) : 0;
        if (n > 0)
            buf_commit(in, (size_t)n);
        check(in);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2], control[2];
    struct agent_config config = AGENT_CONFIG_DEFAULT;
    AUTO_BUF struct buf in = BUF_INIT(2 << 20);
    if (!agent.config.users.passwd) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
            agent_init(&agent, &config, control[0]) < 0)
            abort();
        agent.n_live = PROCESS_LIVE_MAX; /* EXEC is parsed, looked at and refused */
    }
    if (size < 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return 0;
    session_start(&agent.session, ends[1]);
    turn(ends[0], &in);
    size_t step = (size_t)data[0] * data[0] + 1;
    for (size_t at = 1; at < size; at += step) {
        ssize_t n = send(ends[0], data + at, MIN(step, size - at), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            break;
        turn(ends[0], &in);
    }
    (void)close(ends[0]);
    turn(-1, &in);
    if (agent.session.io.fd >= 0 || map_count(&agent.session.streams) || agent.input_bytes)
        abort();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process.StreamInput: many messages of input for one process, in one request.
 *
 * One message at a time is with the core. Meanwhile the body is paused, and what was received behind that message
 * waits in c->in (at most one piece of the body).
 */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/process_spec.h"
#include "api/e2b/envd/rpc.h"
#include "http/client/connect.h"

enum { STREAM_INPUT_REST_MAX = 512 * 1024 };

struct input_stream {
    struct connect_decoder decoder;
    struct exec_select which;
    bool started, is_decoding;
};

static void envd_stream_input_advance(struct call *c);

static void envd_stream_input_cleanup(struct call *c)
{
    struct input_stream *s = c->state;
    connect_decoder_fini(&s->decoder);
}

/* Is there such a process? A stream that sends nothing for long should not learn it late. */
static void envd_stream_input_on_list(void *ctx, const struct exec_process *processes, size_t n, const struct err *err)
{
    struct call *c = ctx;
    const struct exec_select *which = &((struct input_stream *)c->state)->which;
    c->exec = NULL;
    if (err) {
        call_fail_err(c, err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (which->by_tag ? processes[i].has_tag && str_eq(processes[i].tag, which->tag)
                          : processes[i].pid == which->pid) {
            envd_stream_input_advance(c);
            return;
        }
    }
    if (which->by_tag)
        rpc_fail(c, ERR_NOT_FOUND, "process with tag %.*s not found", STR_ARG(which->tag));
    else
        rpc_fail(c, ERR_NOT_FOUND, "process with pid %u not found", which->pid);
}

static int take_start(struct call *c, const json_t *start)
{
    struct input_stream *s = c->state;
    if (s->started) /* what each would leave behind lives as long as the stream */
        return err_set(&c->err, ERR_INVALID_ARGUMENT, "the stream has begun already");
    if (process_select_read(start, &s->which, &c->err) < 0)
        return -1;
    s->which.tag = arena_str(http_arena(c->req), s->which.tag);
    s->started = true;
    return exec_list(c->sandbox, &c->actor, envd_stream_input_on_list, c, &c->exec, &c->err);
}

static int take_data(struct call *c, const json_t *data)
{
    AUTO_BUF struct buf bytes = BUF_INIT(INPUT_BODY_MAX);
    struct input_stream *s = c->state;
    struct str base64;
    bool pty;
    if (!s->started)
        return err_set(&c->err, ERR_INVALID_ARGUMENT, "the stream must begin with a start event");
    if (process_input_read(data, &pty, &base64, &c->err) < 0)
        return -1;
    if (rpc_append_bytes(&bytes, base64) < 0)
        return err_set(&c->err, ERR_INVALID_ARGUMENT, "unmarshal message: the input is not base64");
    return exec_input(c->sandbox, &c->actor, &s->which, pty, buf_str(&bytes), CALL_EXEC(c, envd_stream_input_advance));
}

static void take_step(struct call *c)
{
    struct input_stream *s = c->state;
    json_t *start = NULL, *data = NULL, *keepalive = NULL;
    int r;
    if (!CALL_WANTS(c, JSON_WANT_OBJECT("start", &start), JSON_WANT_OBJECT("data", &data),
                    JSON_WANT_OBJECT("keepalive", &keepalive)))
        return;
    if (start)
        r = take_start(c, start);
    else if (data)
        r = take_data(c, data);
    else if (keepalive)
        r = 0;
    else
        r = err_set(&c->err, ERR_UNIMPLEMENTED, "the message holds no event");
    if (call_ok(c, r) && !s->is_decoding)
        envd_stream_input_advance(c);
}

static void take_message(struct call *c, struct str text)
{
    AUTO_BUF struct buf plain = BUF_INIT(INPUT_BODY_MAX);
    struct input_stream *s = c->state;
    if (connect_decoder_is_compressed(&s->decoder)) {
        if (rpc_unpack(c, text, &plain) < 0)
            return;
        text = buf_str(&plain);
    }
    json_decref(TAKE_PTR(c->body));
    if (json_read_object(text, false, &c->body, &c->err) < 0) {
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: %s", c->err.msg);
        return;
    }
    s->is_decoding = true;
    call_step(c, take_step);
    s->is_decoding = false;
}

/* Decodes until a message is with the core or the input is used up. */
static void envd_stream_input_advance(struct call *c)
{
    struct input_stream *s = c->state;
    while (!c->answered && !c->exec && !c->is_held) {
        struct str in = buf_str(&c->in), message;
        size_t before = in.n;
        int r = connect_decoder_next(&s->decoder, &in, &message);
        if (r == CONNECT_MESSAGE)
            take_message(c, message);
        buf_consume(&c->in, before - in.n);
        if (r == CONNECT_NEED_MORE)
            break;
        if (r < 0)
            rpc_fail(c, r == -EMSGSIZE ? ERR_RESOURCE_EXHAUSTED : ERR_INVALID_ARGUMENT,
                     "protocol error: malformed envelope");
    }
    if (c->answered)
        return;
    call_await_body(c, c->exec || c->is_held);
    if (!c->in_ended || c->exec || c->is_held)
        return;
    if (connect_decoder_end(&s->decoder) < 0) {
        rpc_fail(c, ERR_INVALID_ARGUMENT, "protocol error: the stream ends within an envelope");
    } else {
        AUTO_BUF struct buf reply = BUF_INIT(64);
        connect_append(&reply, 0, STR("{}"));
        rpc_send(c, buf_str(&reply));
        rpc_end(c);
    }
}

static void on_deadline(struct call *c)
{
    exec_call_cancel(TAKE_PTR(c->exec));
    rpc_fail(c, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
}

void envd_stream_input(struct call *c)
{
    struct input_stream *s = call_state(c, sizeof(*s), envd_stream_input_cleanup);
    connect_decoder_init(&s->decoder, INPUT_BODY_MAX);
    s->decoder.may_compress = rpc_has_gzip(c);
    if (c->timeout_ms)
        call_set_timer(c, c->timeout_ms, on_deadline);
    call_gather_body(c, STREAM_INPUT_REST_MAX, envd_stream_input_advance);
}

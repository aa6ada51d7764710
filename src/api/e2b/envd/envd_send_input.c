/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process.SendInput: input of any length for one process, in one message.
 *
 * Theory of operation
 *  1. The body is gathered. One that ends within WHOLE_MAX is parsed like any other message.
 *  2. A longer one is cut where its last string is open. What comes before must, when a marker and the missing ends are
 *     added, be a message that selects a process and whose input is the marker: so the open string is the input.
 *  3. That string goes to the core in pieces, one at a time; meanwhile the body is paused. The core answers when the
 *     process has read a piece, so nothing grows when it reads slowly.
 *  4. Only the ends of the open objects may follow the string. What is wrong there is told, but the process has read
 *     what came before.
 */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/input_text.h"
#include "api/e2b/envd/process_spec.h"
#include "api/e2b/envd/rpc.h"
#include "base/mem.h"

enum { WHOLE_MAX = BODY_MAX, SEND_INPUT_REST_MAX = WHOLE_MAX + 256 * 1024, PIECE = 512 * 1024 };

#define INPUT_MARKER "?" /* no base64 */

struct input_body {
    struct buf bytes; /* for the process, until the core has them */
    struct exec_select which;
    enum { INPUT_GATHERED, INPUT_IN_STRING, INPUT_BEHIND_STRING } phase;
    unsigned depth; /* objects that are open around the string */
    bool pty, padded, is_stepping;
};

static void input_advance(struct call *c);

static void input_cleanup(struct call *c)
{
    struct input_body *s = c->state;
    buf_fini(&s->bytes);
}

static void input_step(struct call *c)
{
    struct input_body *s = c->state;
    if (call_ok(
            c, exec_input(c->sandbox, &c->actor, &s->which, s->pty, buf_str(&s->bytes), CALL_EXEC(c, input_advance))) &&
        !s->is_stepping)
        input_advance(c);
}

static void input_send(struct call *c, struct str base64)
{
    struct input_body *s = c->state;
    buf_clear(&s->bytes);
    if (rpc_append_bytes(&s->bytes, base64) < 0) {
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: the input is not base64");
        return;
    }
    s->is_stepping = true;
    call_step(c, input_step);
    s->is_stepping = false;
}

/* A message that is there as a whole. */
static void input_whole(struct call *c)
{
    struct input_body *s = c->state;
    struct str base64;
    s->phase = INPUT_BEHIND_STRING;
    if (!call_ok(c, process_select_read(c->body, &s->which, &c->err)) ||
        !call_ok(c, process_input_read(c->body, &s->pty, &base64, &c->err)))
        return;
    s->which.tag = arena_str(http_arena(c->req), s->which.tag);
    input_send(c, base64);
}

static void input_open(struct call *c)
{
    AUTO_BUF struct buf text = BUF_INIT(SEND_INPUT_REST_MAX + INPUT_TEXT_DEPTH + 2);
    AUTO_JSON json_t *message = NULL;
    struct input_body *s = c->state;
    struct str base64 = STR_NULL;
    struct err err;
    ssize_t at = input_text_open(buf_str(&c->in), &s->depth);
    if (at < 0) {
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the message is too large");
        return;
    }
    buf_append(&text, buf_data(&c->in), (size_t)at);
    buf_append_cstr(&text, INPUT_MARKER "\"");
    for (unsigned i = 0; i < s->depth; i++)
        buf_append_char(&text, '}');
    if (json_read_object(buf_str(&text), false, &message, &err) < 0) {
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: %s", err.msg);
    } else if (process_select_read(message, &s->which, &err) < 0 ||
               process_input_read(message, &s->pty, &base64, &err) < 0) {
        rpc_fail(c, err.code, "%s; in a message of more than %d MiB the input is last", err.msg, WHOLE_MAX >> 20);
    } else if (!str_eqc(base64, INPUT_MARKER)) {
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the message is too large");
    } else {
        s->which.tag = arena_str(http_arena(c->req), s->which.tag);
        buf_consume(&c->in, (size_t)at);
        s->phase = INPUT_IN_STRING;
    }
}

/* The next piece of the string. False: more of the body is needed. */
static bool input_piece(struct call *c)
{
    struct input_body *s = c->state;
    AUTO_FREE char *text = mem_array(MIN(buf_len(&c->in), (size_t)PIECE) + 1, 1);
    size_t n;
    bool ends, was_padded = s->padded;
    size_t used = input_text_piece(buf_str(&c->in), text, PIECE, &n, &ends);
    if (used == 0)
        return false;
    s->padded = n && text[n - 1] == '=';
    if (n && was_padded)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: the input is not base64");
    else if (n)
        input_send(c, str_n(text, n));
    buf_consume(&c->in, used);
    if (ends)
        s->phase = INPUT_BEHIND_STRING;
    return true;
}

static void input_behind(struct call *c)
{
    struct input_body *s = c->state;
    struct str rest = buf_str(&c->in);
    for (size_t i = 0; rest.p && i < rest.n; i++) {
        if (rest.p[i] == '}' && s->depth > 0)
            s->depth--;
        else if (!strchr(" \t\r\n", rest.p[i]) || !rest.p[i]) {
            rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: the input must be last in a message this long");
            return;
        }
    }
    buf_consume(&c->in, rest.n);
    if (c->in_ended && s->depth > 0)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: unexpected end");
    else if (c->in_ended)
        call_json(c, 200, STR("{}"));
}

static void input_gathered(struct call *c)
{
    AUTO_BUF struct buf plain = BUF_INIT(INPUT_BODY_MAX), body = BUF_INIT(0);
    if (c->in_ended) {
        body = c->in;
        buf_init(&c->in, SEND_INPUT_REST_MAX);
        if (!rpc_has_gzip(c))
            rpc_read(c, buf_str(&body), input_whole);
        else if (rpc_unpack(c, buf_str(&body), &plain) == 0)
            rpc_read(c, buf_str(&plain), input_whole);
    } else if (buf_len(&c->in) > WHOLE_MAX && rpc_has_gzip(c)) {
        rpc_fail(c, ERR_RESOURCE_EXHAUSTED, "the message is too large");
    } else if (buf_len(&c->in) > WHOLE_MAX) {
        input_open(c);
    }
}

/* Goes on until a piece is with the core, or what was received is used up. */
static void input_advance(struct call *c)
{
    struct input_body *s = c->state;
    bool more = true;
    if (s->phase == INPUT_GATHERED)
        input_gathered(c);
    while (!c->answered && !c->exec && !c->is_held && s->phase == INPUT_IN_STRING && more)
        more = input_piece(c);
    if (!c->answered && !c->exec && !c->is_held && s->phase == INPUT_BEHIND_STRING)
        input_behind(c);
    if (c->answered)
        return;
    call_await_body(c, c->exec || c->is_held);
    if (c->in_ended && !c->exec && !c->is_held)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "unmarshal message: unexpected end");
}

void envd_send_input(struct call *c)
{
    struct input_body *s = call_state(c, sizeof(*s), input_cleanup);
    buf_init(&s->bytes, WHOLE_MAX);
    call_gather_body(c, SEND_INPUT_REST_MAX, input_advance);
}

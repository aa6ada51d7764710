/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 *  1. Both directions are parsed and written anew; no framing byte of one side reaches the other before a 101 that was
 *     asked for.
 *  2. One request at a time. The next one is not parsed before the answer to this one is written, so what belongs to
 *     what is never in doubt; what the client sends ahead waits in its buffer, then in the kernel.
 *  3. A head is written upstream only by h1_request.c's judge(), behind on_request.
 *  4. What is not complete never looks complete: a request that breaks off is cut upstream with a reset, an answer that
 *     breaks off is cut so for the client.
 *  5. Between reading and writing lies at most END_OUT_HIGH and one read: a side that does not take stops the other one
 *     from being read.
 */
#include "base/mem.h"
#include "egress/http/h1_internal.h"

static struct h1 *h1_of(struct exchange *x)
{
    return container_of(x, struct h1, x);
}

void h1_tell_answer(struct h1 *h, int status)
{
    if (!h->owed)
        return;
    h->owed = false;
    h->x.ops->on_answer(h->x.ctx, h->id, status);
}

void h1_respond(struct h1 *h, int status, struct str text)
{
    assert(h->answer == H1_ANSWER_NONE || h->answer == H1_ANSWER_WAIT);
    AUTO_BUF struct buf body = BUF_INIT(8192);
    exchange_refusal_body(&body, status, text);
    struct buf *b = &h->x.client.out;
    buf_printf(b, "HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n%s\r\n", status,
               exchange_reason(status), buf_len(&body),
               h->close    ? "connection: close\r\n"
               : h->http10 ? "connection: keep-alive\r\n"
                           : "");
    if (!h->head_only)
        buf_append_str(b, buf_str(&body));
    assert(buf_error(b) == 0);
    h->answer = H1_ANSWER_DONE;
    h1_tell_answer(h, status);
}

void h1_finish(struct h1 *h)
{
    h1_tell_answer(h, 0);
    end_linger(&h->x.client);
    if (h->forwarded)
        end_reset(&h->x.upstream);
    else
        end_linger(&h->x.upstream);
    exchange_end(&h->x, NULL);
}

void h1_cut(struct h1 *h, const char *why)
{
    struct err err;
    (void)err_set(&err, ERR_ABORTED, "%s", why);
    h1_tell_answer(h, 0);
    (void)end_flush(&h->x.client);
    end_reset(&h->x.client);
    end_reset(&h->x.upstream);
    exchange_end(&h->x, &err);
}

/* A server may end a connection that it has answered on before, for no fault of the request: when the client gets no
 * answer at all, it tries again. */
void h1_upstream_lost(struct h1 *h, const char *why)
{
    if (h->reused) {
        h1_finish(h);
        return;
    }
    char text[300];
    (void)snprintf(text, sizeof(text), "no answer from the server: %s", why);
    h->close = true;
    h1_respond(h, 502, str_of(text));
    if (h->request < H1_REQUEST_BODY)
        h->request = H1_REQUEST_SKIP;
}

static void next_request(struct h1 *h)
{
    struct exchange_end *ends[] = {&h->x.client, &h->x.upstream};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        if (buf_len(&ends[i]->in) == 0)
            buf_fini(&ends[i]->in);
        if (buf_len(&ends[i]->out) == 0)
            buf_fini(&ends[i]->out);
    }
    h->reused |= h->forwarded;
    h->request = H1_REQUEST_HEAD;
    h->answer = H1_ANSWER_NONE;
    h->skipped = 0;
    h->forwarded = h->upgrade = h->chunked_out = h->head_only = h->http10 = h->whole = false;
    h1_parser_begin(&h->req, false);
}

/* Both are through. True: something new begins. */
static bool turn_over(struct h1 *h)
{
    if (h->answer != H1_ANSWER_DONE || (h->request != H1_REQUEST_DONE && !h->close))
        return false;
    if (!h->close) {
        next_request(h);
        return true;
    }
    if (buf_len(&h->x.client.out))
        return false;
    if (h->request == H1_REQUEST_DONE)
        h->forwarded = false; /* as a whole: there is nothing to cut */
    h1_finish(h);
    return true;
}

static bool pass(struct exchange_end *from, struct exchange_end *to)
{
    bool moved = false;
    if (buf_len(&from->in) && buf_len(&to->out) < END_OUT_HIGH) {
        end_put_now(to, buf_str(&from->in));
        buf_clear(&from->in);
        moved = true;
    }
    if (from->eof && buf_len(&from->in) == 0 && buf_len(&to->out) == 0 && !to->shut) {
        side_shut(to->side);
        to->shut = moved = true;
    }
    return moved;
}

static bool raw_step(struct h1 *h)
{
    struct exchange_end *client = &h->x.client, *up = &h->x.upstream;
    if (up->failed) {
        h1_cut(h, up->err.msg);
        return true;
    }
    bool moved = pass(client, up);
    moved |= pass(up, client);
    if (client->shut && up->shut) {
        h->forwarded = false;
        h1_finish(h);
        return true;
    }
    return moved;
}

static void on_client_lost(struct h1 *h)
{
    struct err err = {.code = ERR_ABORTED, .msg = "the client went away"};
    if (h->x.client.failed)
        err = h->x.client.err;
    h1_tell_answer(h, 0);
    end_reset(&h->x.client);
    if (h->forwarded || h->raw)
        end_reset(&h->x.upstream);
    else
        end_linger(&h->x.upstream);
    exchange_end(&h->x, &err);
}

static void h1_settle(struct exchange *x, bool moved)
{
    struct h1 *h = h1_of(x);
    enum h1_phase phase = H1_BUSY;
    if (h->answer == H1_ANSWER_NONE && h->request == H1_REQUEST_HEAD)
        phase = h1_parser_begun(&h->req) || buf_len(&h->x.client.in) ? H1_READING_HEAD : H1_IDLE;
    if (phase == h->phase && h->phase_id == h->x.last_id && !(moved && phase == H1_BUSY))
        return;
    const struct exchange_times *t = &h->x.times;
    const unsigned ms[] = {[H1_IDLE] = t->idle_ms, [H1_READING_HEAD] = t->head_ms, [H1_BUSY] = t->stall_ms};
    h->phase = phase;
    h->phase_id = h->x.last_id;
    exchange_deadline(&h->x, ms[phase]);
}

static bool h1_round(struct exchange *x)
{
    struct h1 *h = h1_of(x);
    if (x->client.failed || x->client.unwritable) {
        on_client_lost(h);
        return true;
    }
    bool moved = end_read(&x->client);
    moved |= end_read(&x->upstream);
    if (h->raw)
        return raw_step(h) || moved;
    moved |= h1_request_step(h);
    moved |= !exchange_over(x) && h1_answer_step(h);
    moved |= !exchange_over(x) && turn_over(h);
    return moved;
}

static void h1_on_timeout(struct exchange *x)
{
    struct h1 *h = h1_of(x);
    exchange_deadline(x, x->times.stall_ms);
    if (h->phase == H1_IDLE) {
        h1_finish(h);
    } else if (h->phase == H1_READING_HEAD) {
        h->close = true;
        h1_respond(h, 408, STR("the request's head took too long"));
        h->request = H1_REQUEST_DONE;
    } else if (h->answer == H1_ANSWER_WAIT && !h->raw) {
        end_reset(&x->upstream);
        h->close = true;
        h1_respond(h, 504, STR("the server took too long"));
    } else {
        h1_cut(h, "nothing moved for too long");
    }
}

static void h1_on_no_upstream(struct exchange *x, const char *why)
{
    struct h1 *h = h1_of(x);
    h->dead = true;
    h->reused = false;
    (void)snprintf(h->why, sizeof(h->why), "%s", why ? why : "it could not be reached");
}

static void h1_release(struct exchange *x)
{
    struct h1 *h = h1_of(x);
    h1_parser_fini(&h->req);
    h1_parser_fini(&h->ans);
    buf_fini(&h->held);
    arena_wipe(&h->arena);
    mem_free(h);
}

static const struct exchange_kind h1_kind = {h1_round, h1_settle, h1_on_timeout, h1_on_no_upstream, h1_release};

struct exchange *h1_exchange_timed(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                                   const struct exchange_ops *ops, void *ctx, const struct exchange_times *times)
{
    struct h1 *h = mem_new(struct h1);
    h1_parser_init(&h->req, false);
    h1_parser_init(&h->ans, true);
    buf_init(&h->held, 2 * EXCHANGE_BODY_MAX);
    exchange_init(&h->x, &h1_kind, loop, client, upstream, first, ops, ctx, times);
    exchange_deadline(&h->x, h->x.times.idle_ms);
    return &h->x;
}

struct exchange *h1_exchange(uv_loop_t *loop, struct side *client, struct side *upstream, struct str first,
                             const struct exchange_ops *ops, void *ctx)
{
    return h1_exchange_timed(loop, client, upstream, first, ops, ctx, NULL);
}

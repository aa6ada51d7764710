/* SPDX-License-Identifier: Apache-2.0 */
/* From upstream: an answer to the one request that is open, or the end. */
#include "egress/http/h1_internal.h"

static void h1_answer_lose(struct h1 *h, const char *why)
{
    h->dead = true;
    (void)snprintf(h->why, sizeof(h->why), "%s", why);
    end_reset(&h->x.upstream);
}

/* Between requests the server has nothing to say; it may only close. */
static void watch_idle(struct h1 *h)
{
    struct exchange_end *up = &h->x.upstream;
    if (!up->side || (!up->failed && !up->eof && buf_len(&up->in) == 0))
        return;
    if (h->reused && !h1_parser_begun(&h->req) && buf_len(&h->x.client.in) == 0)
        h1_finish(h);
    else if (up->failed)
        h1_answer_lose(h, up->err.msg);
    else
        h1_answer_lose(h, up->eof ? "the server closed the connection" : "the server spoke before it was asked");
}

static bool h1_answer_on_head(struct h1 *h)
{
    const struct h1_parser *p = &h->ans;
    if (p->status == 101) {
        if (!h->upgrade || h->request != H1_REQUEST_DONE)
            return false;
        h->raw = true;
        h1_write_answer(h);
        h1_tell_answer(h, 101);
        return true;
    }
    if (p->status < 200) {
        if (!h->http10)
            h1_write_answer(h);
        return true;
    }
    h->chunked_out = (p->framing == H1_CHUNKED || (p->llhttp.flags & F_CHUNKED)) && !h->http10;
    h->close |= !p->keep_alive || p->framing == H1_UNTIL_CLOSE || (p->framing == H1_CHUNKED && h->http10);
    h->answer = H1_ANSWER_BODY;
    h1_write_answer(h);
    h1_tell_answer(h, p->status);
    return true;
}

static void h1_answer_on_end(struct h1 *h)
{
    if (h->raw)
        return;
    if (h->ans.status < 200) {
        h1_parser_begin(&h->ans, h->head_only);
        return;
    }
    h1_write_end(h, &h->x.client, &h->ans, h->ans.framing == H1_CHUNKED && h->chunked_out);
    h->answer = H1_ANSWER_DONE;
}

static void h1_answer_on_bad(struct h1 *h, const char *why)
{
    char text[200];
    (void)snprintf(text, sizeof(text), "the server's answer is not valid: %s", why);
    if (h->answer == H1_ANSWER_WAIT) {
        end_reset(&h->x.upstream);
        h->reused = false; /* it did answer: trying again would not help */
        h1_upstream_lost(h, text);
    } else {
        h1_cut(h, text);
    }
}

static void on_upstream_end(struct h1 *h)
{
    struct exchange_end *up = &h->x.upstream;
    const char *why = up->failed ? up->err.msg : "the server closed the connection without an answer";
    if (h->answer == H1_ANSWER_WAIT) {
        h->reused = h->reused && !h1_parser_begun(&h->ans);
        h1_upstream_lost(h, why);
    } else if (h->ans.framing == H1_UNTIL_CLOSE && !up->failed) {
        h->answer = H1_ANSWER_DONE;
    } else {
        h1_cut(h, "the server ended within its answer");
    }
}

/* False: nothing more for now. */
static bool egress_h1_answer_step(struct h1 *h)
{
    struct exchange_end *up = &h->x.upstream;
    struct str in = buf_str(&up->in), piece;
    size_t before = in.n;
    switch (h1_parser_next(&h->ans, &in, &piece)) {
    case H1_HEAD:
        if (!h1_answer_on_head(h))
            h1_answer_on_bad(h, "a switch of protocols that nobody asked for");
        break;
    case H1_BODY:
        h1_write_piece(&h->x.client, piece, h->chunked_out);
        break;
    case H1_END:
        h1_answer_on_end(h);
        break;
    case H1_BAD:
        h1_answer_on_bad(h, h->ans.bad);
        break;
    case H1_MORE:
        buf_consume(&up->in, before - in.n);
        if (!up->eof && !up->failed)
            return false;
        on_upstream_end(h);
        return true;
    }
    if (up->side)
        buf_consume(&up->in, before - in.n);
    return true;
}

bool h1_answer_step(struct h1 *h)
{
    bool moved = false;
    struct exchange_end *up = &h->x.upstream;
    if (h->answer == H1_ANSWER_NONE) {
        watch_idle(h);
        return exchange_over(&h->x);
    }
    if (h->answer == H1_ANSWER_WAIT && !up->side && h->dead) {
        h1_upstream_lost(h, h->why);
        return true;
    }
    /* Answered before all of it was sent: what follows can only be the end, and then the rest has nowhere to go. */
    if (h->answer == H1_ANSWER_DONE && h->request == H1_REQUEST_BODY && (up->eof || up->failed || buf_len(&up->in)) &&
        !h->close) {
        h->close = true;
        return true;
    }
    while (!exchange_over(&h->x) && !h->raw && (h->answer == H1_ANSWER_WAIT || h->answer == H1_ANSWER_BODY) &&
           up->side && buf_len(&h->x.client.out) < END_OUT_HIGH && egress_h1_answer_step(h))
        moved = true;
    return moved;
}

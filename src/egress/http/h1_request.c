/* SPDX-License-Identifier: Apache-2.0 */
/* From the client: each head is judged before a byte of it goes anywhere. */
#include "egress/http/h1_internal.h"

/* "http://host/path": what is before the path, in lower case or not, is cut off. False: neither this nor a path. */
static bool split_target(struct str target, struct str *ret_authority, struct str *ret_path)
{
    if (target.n && (target.p[0] == '/' || str_eqc(target, "*"))) {
        *ret_authority = STR_NULL;
        *ret_path = target;
        return true;
    }
    static const struct str schemes[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
        if (target.n <= schemes[i].n || !str_eq_nocase(str_n(target.p, schemes[i].n), schemes[i]))
            continue;
        struct str rest = str_sub(target, schemes[i].n);
        size_t n = 0;
        while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
            n++;
        *ret_authority = str_n(rest.p, n);
        *ret_path = str_sub(rest, n);
        return n > 0;
    }
    return false;
}

/* NULL, or what is wrong with the request. The names and values stay where the parser has them. */
static const char *read_head(struct h1 *h, struct exchange_head *head)
{
    struct h1_parser *p = &h->req;
    struct http_header *raw = arena_alloc(&h->arena, (p->fields.n + 1) * sizeof(*raw));
    bool has_host = false;
    for (unsigned i = 0; i < p->fields.n; i++) {
        raw[i] = fields_at(&p->fields, i);
        has_host |= str_eqc(raw[i].name, "host");
    }
    if (!split_target(p->target, &head->authority, &head->path))
        return "the target is not valid";
    if (head->path.n == 0)
        head->path = STR("/");
    else if (head->path.p[0] == '?')
        head->path = str_of(arena_printf(&h->arena, "/%.*s", STR_ARG(head->path)));
    head->method = p->method;
    if (!has_host && !p->is_http10)
        return "the Host is missing";
    const char *wrong = exchange_fill_head(head, raw, p->fields.n);
    return wrong ? wrong : exchange_check_target(head);
}

static struct str expectation(const struct exchange_head *head)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        if (str_eqc(head->fields[i].name, "expect"))
            return head->fields[i].value;
    }
    return STR_NULL;
}

static bool keeps_upgrade(const struct exchange_head *head)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        if (str_eqc(head->fields[i].name, "upgrade"))
            return true;
    }
    return false;
}

/* Not allowed, or not possible: answered here. What is left of the body is dropped, or the connection with it. */
static void h1_request_refuse(struct h1 *h, int status, struct str text, bool close)
{
    const struct h1_parser *p = &h->req;
    h->close = h->close || close || !p->keep_alive || (p->framing == H1_LENGTH && p->length > EXCHANGE_SKIP_MAX);
    h1_respond(h, status, text);
    h->request = H1_REQUEST_SKIP;
}

static void h1_request_judge(struct h1 *h);

/* What was collected is asked about, or passed on as it is. */
static void h1_request_release(struct h1 *h, bool is_whole)
{
    h->whole = is_whole;
    h->head.body_is = is_whole ? EXCHANGE_BODY_WHOLE : EXCHANGE_BODY_PASSED;
    h->head.body = is_whole ? buf_str(&h->held) : STR_NULL;
    h1_request_judge(h);
    if (h->request == H1_REQUEST_BODY)
        h->rest = is_whole ? h->head.body : buf_str(&h->held);
}

/* It is asked about later. A client that waits for 100 Continue gets it here: upstream hears of the request when its
 * body is there. */
static void h1_request_hold(struct h1 *h, bool for_body, bool waits)
{
    const struct h1_parser *p = &h->req;
    exchange_keep_head(&h->head);
    h->request = for_body ? H1_REQUEST_HOLD : H1_REQUEST_WAIT;
    if (!for_body)
        return;
    assert(h->head.body_is == EXCHANGE_BODY_UNREAD);
    if (p->framing == H1_NO_BODY || (p->framing == H1_LENGTH && p->length > EXCHANGE_BODY_MAX)) {
        h1_request_release(h, false);
        return;
    }
    if (waits)
        end_put(&h->x.client, STR("HTTP/1.1 100 Continue\r\n\r\n"));
    exchange_remove(&h->head, STR("expect"));
}

static void h1_request_judge(struct h1 *h)
{
    struct exchange_refusal refusal = {.status = 403};
    struct exchange *x = &h->x;
    struct exchange_head *head = &h->head;
    struct str expect = expectation(head);
    bool waits = false;
    if (expect.p && !h->http10) {
        if (!str_eq_nocase(expect, STR("100-continue"))) {
            h1_request_refuse(h, 417, STR("this expectation is not supported"), true);
            return;
        }
        waits = h->req.framing != H1_NO_BODY;
    } else if (expect.p) {
        exchange_remove(head, STR("expect"));
    }
    h->id = ++x->last_id;
    if (!x->ops->on_request(x->ctx, h->id, head, &refusal)) {
        if (!x->closed && refusal.wants)
            h1_request_hold(h, refusal.wants == EXCHANGE_WANTS_BODY, waits);
        else if (
            !x->closed) /* a client that waits for 100 Continue may send the body after a refusal, or not: no way to know */
            h1_request_refuse(h, refusal.status, str_n(refusal.text, strnlen(refusal.text, sizeof(refusal.text))),
                              refusal.close || waits);
        return;
    }
    h->owed = true;
    if (x->closed)
        return;
    if (!exchange_is_sendable(head)) {
        h1_request_refuse(h, 500, STR("what was put into this request can't be sent"), true);
        return;
    }
    if (h->dead) {
        h1_upstream_lost(h, h->why);
        return;
    }
    h->upgrade = !h->http10 && h->req.framing == H1_NO_BODY && keeps_upgrade(head);
    if (!h->upgrade)
        exchange_remove(head, STR("upgrade"));
    h->close = !h->req.keep_alive;
    h->answer = H1_ANSWER_WAIT;
    h->request = H1_REQUEST_BODY;
    h->forwarded = true;
    h1_parser_begin(&h->ans, h->head_only);
    h1_write_request(h, head);
}

/* What is kept of a head and of its body goes when nothing more is made of it. */
static void h1_request_forget(struct h1 *h)
{
    if (h->request == H1_REQUEST_WAIT || h->request == H1_REQUEST_HOLD || h->rest.n)
        return;
    buf_fini(&h->held);
    arena_wipe(&h->arena);
    h->head = (struct exchange_head){.arena = NULL};
}

static void h1_request_on_head(struct h1 *h)
{
    h->head = (struct exchange_head){.arena = &h->arena};
    h->http10 = h->req.is_http10;
    h->head_only = str_eqc(h->req.method, "HEAD");
    const char *wrong = read_head(h, &h->head);
    if (exchange_is_refused_method(h->req.method))
        h1_request_refuse(h, 405, STR("this method is not passed on"), true);
    else if (wrong)
        h1_request_refuse(h, 400, str_of(wrong), true);
    else
        h1_request_judge(h);
}

/* What is held without being passed on is bounded here, whatever the client sends. */
static void h1_request_collect(struct h1 *h, struct str piece)
{
    int r = buf_append_str(&h->held, piece);
    assert(r == 0);
    if (buf_len(&h->held) > EXCHANGE_BODY_MAX)
        h1_request_release(h, false);
    else if (exchange_is_full(&h->x) && buf_len(&h->held) > EXCHANGE_SHARE_LEAST)
        h1_request_refuse(h, 503, STR("this sandbox's connections hold too much data that nobody reads"), true);
}

static void on_piece(struct h1 *h, struct str piece)
{
    if (h->request == H1_REQUEST_BODY) {
        h1_write_piece(&h->x.upstream, piece, h->req.framing == H1_CHUNKED);
    } else if (h->request == H1_REQUEST_HOLD) {
        h1_request_collect(h, piece);
    } else {
        h->skipped += piece.n;
        h->close |= h->skipped > EXCHANGE_SKIP_MAX;
    }
}

static void h1_request_on_bad(struct h1 *h)
{
    if (h->request == H1_REQUEST_BODY)
        end_reset(&h->x.upstream); /* nobody shall take what came so far for a request */
    h->close = true;
    if (h->answer == H1_ANSWER_NONE || h->answer == H1_ANSWER_WAIT)
        h1_respond(h, h->req.bad_status, str_of(h->req.bad));
    else if (h->answer == H1_ANSWER_BODY)
        h1_cut(h, "the request's body is malformed");
    h->request = H1_REQUEST_DONE;
}

static void on_client_end(struct h1 *h)
{
    if (h->request == H1_REQUEST_HEAD || h->request == H1_REQUEST_HOLD) {
        h1_finish(h);
    } else if (h->request == H1_REQUEST_BODY) {
        h1_cut(h, "the client ended within a request");
    } else {
        h->request = H1_REQUEST_DONE;
        h->close = true;
    }
}

static void h1_request_end(struct h1 *h)
{
    if (h->request == H1_REQUEST_BODY)
        h1_write_end(h, &h->x.upstream, &h->req, h->req.framing == H1_CHUNKED);
    h->request = H1_REQUEST_DONE;
}

static void h1_request_on_end(struct h1 *h)
{
    if (h->request == H1_REQUEST_HOLD)
        h1_request_release(h, true);
    if (!h->rest.n)
        h1_request_end(h);
}

/* Of a body that was collected. */
static void h1_request_drain(struct h1 *h)
{
    struct str piece = str_n(h->rest.p, MIN(h->rest.n, (size_t)END_READ));
    if (h->request == H1_REQUEST_BODY)
        h1_write_piece(&h->x.upstream, piece, h->req.framing == H1_CHUNKED);
    h->rest = str_sub(h->rest, piece.n);
    if (!h->rest.n && h->whole)
        h1_request_end(h);
}

/* False: nothing more for now. */
static bool egress_h1_request_step(struct h1 *h)
{
    struct exchange_end *client = &h->x.client;
    struct str in = buf_str(&client->in), piece;
    size_t before = in.n;
    switch (h1_parser_next(&h->req, &in, &piece)) {
    case H1_HEAD:
        h1_request_on_head(h);
        break;
    case H1_BODY:
        on_piece(h, piece);
        break;
    case H1_END:
        h1_request_on_end(h);
        break;
    case H1_BAD:
        h1_request_on_bad(h);
        break;
    case H1_MORE:
        buf_consume(&client->in, before - in.n);
        if (!client->eof)
            return false;
        on_client_end(h);
        return true;
    }
    if (client->side)
        buf_consume(&client->in, before - in.n);
    return true;
}

static bool h1_request_move(struct h1 *h)
{
    bool moved = true;
    if (h->rest.n) {
        h1_request_drain(h);
    } else if (h->request == H1_REQUEST_WAIT) {
        moved = h->x.resumed;
        h->x.resumed = false;
        if (moved)
            h1_request_judge(h);
    } else {
        moved = egress_h1_request_step(h);
    }
    if (!h->x.closed)
        h1_request_forget(h);
    h->x.held = buf_len(&h->held);
    return moved;
}

bool h1_request_step(struct h1 *h)
{
    bool moved = false;
    while (!exchange_over(&h->x) && !h->raw && h->request != H1_REQUEST_DONE &&
           buf_len(&h->x.upstream.out) < END_OUT_HIGH && h1_request_move(h))
        moved = true;
    return moved;
}

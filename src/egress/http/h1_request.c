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
    struct http_header *raw = arena_alloc(&h->arena, (p->n_fields + 1) * sizeof(*raw));
    bool has_host = false;
    for (unsigned i = 0; i < p->n_fields; i++) {
        raw[i] = h1_parser_field(p, i);
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
    const char *wrong = exchange_fill_head(head, raw, p->n_fields);
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

static void h1_request_judge(struct h1 *h, struct exchange_head *head)
{
    struct exchange_refusal refusal = {.status = 403};
    struct exchange *x = &h->x;
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
        if (!x->closed) /* a client that waits for 100 Continue may send the body after a refusal, or not: no way to know */
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

static void h1_request_on_head(struct h1 *h)
{
    struct exchange_head head = {.arena = &h->arena};
    h->http10 = h->req.is_http10;
    h->head_only = str_eqc(h->req.method, "HEAD");
    const char *wrong = read_head(h, &head);
    if (exchange_is_refused_method(h->req.method))
        h1_request_refuse(h, 405, STR("this method is not passed on"), true);
    else if (wrong)
        h1_request_refuse(h, 400, str_of(wrong), true);
    else
        h1_request_judge(h, &head);
    arena_wipe(&h->arena);
}

static void on_piece(struct h1 *h, struct str piece)
{
    if (h->request == H1_REQUEST_BODY) {
        h1_write_piece(&h->x.upstream, piece, h->req.framing == H1_CHUNKED);
    } else {
        h->skipped += piece.n;
        h->close |= h->skipped > EXCHANGE_SKIP_MAX;
    }
}

static void on_bad(struct h1 *h)
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
    if (h->request == H1_REQUEST_HEAD) {
        h1_finish(h);
    } else if (h->request == H1_REQUEST_BODY) {
        h1_cut(h, "the client ended within a request");
    } else {
        h->request = H1_REQUEST_DONE;
        h->close = true;
    }
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
        if (h->request == H1_REQUEST_BODY)
            h1_write_end(&h->x.upstream, &h->req, h->req.framing == H1_CHUNKED);
        h->request = H1_REQUEST_DONE;
        break;
    case H1_BAD:
        on_bad(h);
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

bool h1_request_step(struct h1 *h)
{
    bool moved = false;
    while (!exchange_over(&h->x) && !h->raw && h->request != H1_REQUEST_DONE &&
           buf_len(&h->x.upstream.out) < END_OUT_HIGH && egress_h1_request_step(h))
        moved = true;
    return moved;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Heads are written anew, from what was understood. */
#include "egress/http/h1_internal.h"

static void length(struct buf *b, uint64_t n)
{
    buf_append_cstr(b, "content-length: ");
    buf_append_u64(b, n);
    buf_append(b, "\r\n", 2);
}

/* One Connection field of up to three options. */
static void connection(struct buf *b, bool upgrade, bool te, const char *persistence)
{
    const char *options[] = {upgrade ? "upgrade" : NULL, te ? "te" : NULL, persistence};
    const char *before = "connection: ";
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        if (!options[i])
            continue;
        buf_append_cstr(b, before);
        buf_append_cstr(b, options[i]);
        before = ", ";
    }
    if (before[0] == ',')
        buf_append(b, "\r\n", 2);
}

void h1_write_request(struct h1 *h, const struct exchange_head *head)
{
    struct buf *b = &h->x.upstream.out;
    bool te = false;
    buf_append_str(b, head->method);
    buf_append_char(b, ' ');
    buf_append_str(b, head->path);
    buf_append_cstr(b, " HTTP/1.1\r\n");
    http_append_field(b, STR("host"), head->authority);
    for (size_t i = 0; i < head->n_fields; i++) {
        struct http_header f = head->fields[i];
        te |= str_eqc(f.name, "te");
        http_append_field(b, f.name, f.value);
    }
    if (h->req.framing == H1_CHUNKED)
        buf_append_cstr(b, "transfer-encoding: chunked\r\n");
    else if (h->req.has_length)
        length(b, head->body_is == EXCHANGE_BODY_WHOLE ? head->body.n : h->req.length);
    connection(b, h->upgrade, te, h->req.keep_alive || h->upgrade ? NULL : "close");
    buf_append(b, "\r\n", 2);
    assert(buf_error(b) == 0);
}

/* Of an answer's fields these stay behind; what frames it is written by us. */
static bool is_own(const struct h1_parser *p, struct str name)
{
    if (http_list_has(STR("connection,content-length,keep-alive,proxy-connection,te,transfer-encoding,upgrade"), name))
        return true;
    for (unsigned i = 0; i < p->fields.n; i++) {
        struct http_header f = fields_at(&p->fields, i);
        if (str_eq_nocase(f.name, STR("connection")) && http_list_has(f.value, name))
            return true;
    }
    return false;
}

/* Those of an answer, as the owner wants them. */
static struct http_header *h1_write_fields(struct h1 *h, struct arena *arena)
{
    struct http_header *all = arena_alloc(arena, (h->ans.fields.n + 1) * sizeof(*all));
    for (unsigned i = 0; i < h->ans.fields.n; i++)
        all[i] = fields_at(&h->ans.fields, i);
    if (h->x.ops->on_fields && h->ans.fields.n)
        h->x.ops->on_fields(h->x.ctx, h->id, arena, all, h->ans.fields.n);
    return all;
}

void h1_write_answer(struct h1 *h)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    const struct http_header *fields = h1_write_fields(h, &arena);
    const struct h1_parser *p = &h->ans;
    struct buf *b = &h->x.client.out;
    bool final = p->status >= 200;
    buf_printf(b, "HTTP/1.1 %d ", p->status);
    buf_append_cstr(b, exchange_reason(p->status)); /* ours: in a server's own may be what it was sent */
    buf_append(b, "\r\n", 2);
    for (unsigned i = 0; i < p->fields.n; i++) {
        if (!is_own(p, fields[i].name))
            http_append_field(b, fields[i].name, fields[i].value);
    }
    if (final && p->status != 204) {
        if (p->has_length)
            length(b, p->length);
        else if (h->chunked_out)
            buf_append_cstr(b, "transfer-encoding: chunked\r\n");
    }
    if (p->status == 101)
        buf_append_cstr(b, "upgrade: websocket\r\n");
    connection(b, p->status == 101, false, !final ? NULL : h->close ? "close" : h->http10 ? "keep-alive" : NULL);
    buf_append(b, "\r\n", 2);
    assert(buf_error(b) == 0);
}

void h1_write_piece(struct exchange_end *to, struct str piece, bool chunked)
{
    if (!chunked) {
        end_put_now(to, piece);
        return;
    }
    char line[24];
    int n = snprintf(line, sizeof(line), "%zx\r\n", piece.n);
    end_put(to, str_n(line, (size_t)n));
    end_put_now(to, piece);
    end_put(to, STR("\r\n"));
}

void h1_write_end(struct h1 *h, struct exchange_end *to, const struct h1_parser *from, bool chunked)
{
    if (!chunked || to->unwritable || to->failed)
        return;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    const struct http_header *fields = from->is_answer ? h1_write_fields(h, &arena) : NULL;
    struct buf *b = &to->out;
    buf_append_cstr(b, "0\r\n");
    for (unsigned i = 0; i < from->fields.n; i++) {
        struct http_header f = fields ? fields[i] : fields_at(&from->fields, i);
        if (from->is_answer ? !exchange_is_framing(f.name) : exchange_is_trailer(f.name))
            http_append_field(b, f.name, f.value);
    }
    buf_append(b, "\r\n", 2);
    assert(buf_error(b) == 0);
}

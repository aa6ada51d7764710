/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation.
 *
 *  1. llhttp is stopped at each border: behind the head, behind each line of a chunk's size, behind each chunk, at the
 *     end. So all bytes of one execution are of one `place`, and are looked at once more by what this place allows.
 *  2. What llhttp lets pass and we do not: bare LF and CR, folded lines, blanks in the request line, names that are no
 *     tokens, HTTP/0.9, other protocols and their methods, chunk extensions in requests (long ones in answers),
 *     transfer codings but plain "chunked", any of this twice, and with HTTP/1.0 (RFC 9112 sections 2.2, 3, 5.2, 6,
 *     7.1).
 *  3. Every field is held against every option of Connection, so of these there are few.
 *  4. llhttp never switches protocols: `upgrade` is taken away from it. What follows a message is left to the caller.
 */
#include "egress/http/h1_parse.h"
#include "egress/http/exchange_internal.h"

enum { SIZE_LINE_MAX = 18, SIZE_LINE_LOOSE_MAX = 1024, TRAILERS_MAX = 16 * 1024, OPTIONS_MAX = 32 };
enum place { IN_HEAD, IN_SIZE, IN_DATA, IN_TRAILERS };

static int h1_parse_bad(struct h1_parser *p, int status, const char *text)
{
    if (!p->bad) {
        p->bad_status = status;
        p->bad = text;
    }
    return -1;
}

static int h1_parse_added(struct h1_parser *p, int r)
{
    const char *why;
    int status = r < 0 ? fields_status(r, &why) : 0;
    return status ? h1_parse_bad(p, status, why) : 0;
}

static int on_line(llhttp_t *l, const char *at, size_t n)
{
    struct h1_parser *p = l->data;
    return h1_parse_added(p, fields_add_line(&p->fields, at, n));
}

static int on_name(llhttp_t *l, const char *at, size_t n)
{
    struct h1_parser *p = l->data;
    return h1_parse_added(p, fields_add_name(&p->fields, at, n));
}

static int on_name_done(llhttp_t *l)
{
    struct h1_parser *p = l->data;
    return h1_parse_added(p, fields_name_done(&p->fields));
}

static int on_value(llhttp_t *l, const char *at, size_t n)
{
    struct h1_parser *p = l->data;
    return h1_parse_added(p, fields_add_value(&p->fields, at, n));
}

static const char *check_fields(struct h1_parser *p)
{
    for (unsigned i = 0; i < p->fields.n; i++) {
        struct http_header f = fields_at(&p->fields, i);
        if (!http_is_token(f.name) || !http_is_field_value(f.value))
            return "a field is not valid";
        char *name = buf_data(&p->fields.text) + p->fields.at[i].name.at;
        for (size_t k = 0; k < f.name.n && !p->is_answer; k++)
            name[k] = (char)(name[k] >= 'A' && name[k] <= 'Z' ? name[k] + ('a' - 'A') : name[k]);
        if (p->place == IN_TRAILERS && !p->is_answer && exchange_is_framing(f.name))
            return "a trailer has the name of a field that frames or routes the message";
    }
    return NULL;
}

static unsigned count_options(struct str connection)
{
    unsigned n = 0;
    for (struct str option; str_split(&connection, ',', &option);)
        n++;
    return n;
}

/* RFC 9112 section 6.3, without its leniencies. */
static const char *frame(struct h1_parser *p)
{
    unsigned codings = 0, lengths = 0, options = 0;
    bool close = false, keep = false;
    for (unsigned i = 0; i < p->fields.n; i++) {
        struct http_header f = fields_at(&p->fields, i);
        if (str_eq_nocase(f.name, STR("transfer-encoding"))) {
            if (codings++ || p->is_http10 || !str_eq_nocase(f.value, STR("chunked")))
                return "the Transfer-Encoding is not supported";
        } else if (str_eq_nocase(f.name, STR("content-length"))) {
            if (lengths++ || str_to_u64(f.value, &p->length) < 0 || p->length > INT64_MAX)
                return "the Content-Length is not valid";
        } else if (str_eq_nocase(f.name, STR("connection"))) {
            options += count_options(f.value);
            close |= http_list_has(f.value, STR("close"));
            keep |= http_list_has(f.value, STR("keep-alive"));
        }
    }
    if (options > OPTIONS_MAX)
        return "Connection names too many fields";
    if (codings && lengths)
        return "Content-Length and Transfer-Encoding exclude each other";
    if ((codings > 0) != ((p->llhttp.flags & F_CHUNKED) != 0) || (lengths && p->llhttp.content_length != p->length))
        return "the framing is not valid";
    p->has_length = lengths > 0;
    p->bodiless = p->bodiless || (p->is_answer && (p->status < 200 || p->status == 204 || p->status == 304));
    if (p->bodiless)
        p->framing = H1_NO_BODY;
    else if (codings)
        p->framing = H1_CHUNKED;
    else if (lengths)
        p->framing = p->length ? H1_LENGTH : H1_NO_BODY;
    else
        p->framing = p->is_answer ? H1_UNTIL_CLOSE : H1_NO_BODY;
    p->keep_alive = !close && (keep || !p->is_http10) && p->framing != H1_UNTIL_CLOSE;
    return NULL;
}

static int h1_parse_on_head(llhttp_t *l)
{
    struct h1_parser *p = l->data;
    struct str line = fields_line(&p->fields);
    l->upgrade = 0;
    if (l->http_major != 1 || l->http_minor > 1)
        return h1_parse_bad(p, l->http_major ? 505 : 400, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    p->is_http10 = l->http_minor == 0;
    if (p->is_answer) {
        p->status = l->status_code;
        if (p->status < 100 || p->status > 599 || !http_is_field_value(str_trim(line)))
            return h1_parse_bad(p, 400, "the status is not valid");
    } else {
        if (l->method >= HTTP_SOURCE)
            return h1_parse_bad(p, 400, "the method is not supported");
        p->method = str_of(llhttp_method_name(l->method));
        p->target = line;
    }
    const char *wrong = check_fields(p);
    if (!wrong)
        wrong = frame(p);
    if (wrong)
        return h1_parse_bad(p, 400, wrong);
    p->head_done = true;
    return p->framing == H1_NO_BODY ? 1 : HPE_PAUSED; /* 1: no body, whatever it says */
}

static int h1_parse_on_body(llhttp_t *l, const char *at, size_t n)
{
    struct h1_parser *p = l->data;
    p->body = str_n(at, n);
    p->body_there = n > 0;
    return n ? HPE_PAUSED : 0;
}

static int on_size(llhttp_t *l)
{
    struct h1_parser *p = l->data;
    p->place = l->content_length ? IN_DATA : IN_TRAILERS;
    if (p->place == IN_TRAILERS) {
        fields_reset(&p->fields);
        p->head_bytes = 0;
    }
    return HPE_PAUSED;
}

static int on_chunk_end(llhttp_t *l)
{
    struct h1_parser *p = l->data;
    if (p->place == IN_TRAILERS)
        return 0;
    p->place = IN_SIZE;
    p->line_bytes = 0;
    return HPE_PAUSED;
}

static int h1_parse_on_end(llhttp_t *l)
{
    struct h1_parser *p = l->data;
    if (p->place == IN_TRAILERS) {
        const char *wrong = check_fields(p);
        if (wrong)
            return h1_parse_bad(p, 400, wrong);
    }
    p->message_done = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_line,
    .on_status = on_line,
    .on_header_field = on_name,
    .on_header_field_complete = on_name_done,
    .on_header_value = on_value,
    .on_headers_complete = h1_parse_on_head,
    .on_body = h1_parse_on_body,
    .on_chunk_header = on_size,
    .on_chunk_complete = on_chunk_end,
    .on_message_complete = h1_parse_on_end,
};

void h1_parser_init(struct h1_parser *p, bool is_answer)
{
    p->is_answer = is_answer;
    fields_init(&p->fields, EXCHANGE_FIELDS_MAX, EXCHANGE_HEAD_MAX);
    h1_parser_begin(p, false);
}

void h1_parser_fini(struct h1_parser *p)
{
    fields_fini(&p->fields);
}

void h1_parser_begin(struct h1_parser *p, bool head_only)
{
    llhttp_init(&p->llhttp, p->is_answer ? HTTP_RESPONSE : HTTP_REQUEST, (llhttp_settings_t *)&settings);
    p->llhttp.data = p;
    fields_reset(&p->fields);
    p->length = 0;
    p->has_length = false;
    p->bad_status = 0;
    p->bad = NULL;
    p->head_bytes = p->line_bytes = 0;
    p->last = '\n';
    p->place = IN_HEAD;
    p->bodiless = head_only;
    p->paused = p->told_head = p->head_done = p->body_there = p->message_done = p->first_line_done = false;
}

bool h1_parser_begun(const struct h1_parser *p)
{
    return p->head_bytes > 0 || p->told_head;
}

/* The request line has one blank on each side of its target and nothing else: its length says so. And llhttp takes
 * RTSP/1.0 for HTTP/1.0. */
static bool first_line_is_exact(const struct h1_parser *p)
{
    static const size_t around = sizeof("  HTTP/1.1\r\n") - 1;
    static const char version[] = "HTTP/";
    if (p->line_bytes != strlen(llhttp_method_name(p->llhttp.method)) + p->fields.line.n + around)
        return false;
    for (size_t i = 0; i < sizeof(version) - 1; i++) {
        if (p->tail[(p->line_bytes - sizeof(p->tail) + i) % sizeof(p->tail)] != version[i])
            return false;
    }
    return true;
}

static bool lines_are_strict(struct h1_parser *p, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if ((c == '\n') != (p->last == '\r') || (p->last == '\n' && (c == ' ' || c == '\t')))
            return false;
        p->last = c;
        if (p->place != IN_HEAD || p->is_answer || p->first_line_done)
            continue;
        p->tail[p->line_bytes++ % sizeof(p->tail)] = c;
        if (c == '\n' && p->line_bytes == 2) {
            p->line_bytes = 0; /* an empty line before the request (RFC 9112 section 2.2) */
        } else if (c == '\n') {
            p->first_line_done = true;
            if (!first_line_is_exact(p))
                return false;
        }
    }
    return true;
}

static bool size_is_strict(struct h1_parser *p, struct str s)
{
    p->line_bytes += s.n;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if ((c == '\n') != (p->last == '\r') || (!p->is_answer && str_hex_value(c) < 0 && c != '\r' && c != '\n'))
            return false;
        p->last = c;
    }
    return p->line_bytes <= (p->is_answer ? SIZE_LINE_LOOSE_MAX : SIZE_LINE_MAX);
}

/* Invariant 2, for bytes of one place. */
static void look_again(struct h1_parser *p, enum place place, struct str used)
{
    if (place == IN_SIZE && !size_is_strict(p, used)) {
        (void)h1_parse_bad(p, 400, "a chunk's size is not valid");
    } else if (place == IN_HEAD || place == IN_TRAILERS) {
        p->head_bytes += used.n;
        if (p->head_bytes > (place == IN_HEAD ? EXCHANGE_HEAD_MAX : TRAILERS_MAX))
            (void)h1_parse_bad(p, 431, "the head is too large");
        else if (!lines_are_strict(p, used))
            (void)h1_parse_bad(p, 400, "a line of the head is malformed");
    }
}

enum h1_event h1_parser_next(struct h1_parser *p, struct str *in, struct str *ret_piece)
{
    assert(!p->bad);
    for (;;) {
        if (p->head_done && !p->told_head) {
            p->told_head = true;
            p->place = p->framing == H1_CHUNKED ? IN_SIZE : IN_DATA;
            p->line_bytes = 0;
            return H1_HEAD;
        }
        if (p->body_there) {
            p->body_there = false;
            *ret_piece = p->body;
            return H1_BODY;
        }
        if (p->message_done) {
            if (p->place != IN_TRAILERS)
                p->fields.n = 0;
            return H1_END;
        }
        if (in->n == 0 && !p->paused)
            return H1_MORE;
        enum place place = p->place;
        const char *at = in->n ? in->p : "";
        if (p->paused)
            llhttp_resume(&p->llhttp);
        enum llhttp_errno r = llhttp_execute(&p->llhttp, at, in->n);
        p->paused = r == HPE_PAUSED;
        size_t used = in->n;
        if (r != HPE_OK) {
            const char *pos = llhttp_get_error_pos(&p->llhttp);
            used = pos >= at && pos <= at + in->n ? (size_t)(pos - at) : in->n;
        }
        look_again(p, place, str_n(at, used));
        *in = str_sub(*in, used);
        if (r != HPE_OK && r != HPE_PAUSED)
            (void)h1_parse_bad(p, 400, place == IN_HEAD ? "this is not valid HTTP" : "the body's framing is not valid");
        if (p->bad)
            return H1_BAD;
    }
}

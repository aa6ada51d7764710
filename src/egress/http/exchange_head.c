/* SPDX-License-Identifier: Apache-2.0 */
/* The rules for heads, whatever version they came in. */
#include "egress/http/exchange_internal.h"
#include "egress/http/override.h"

enum { AUTHORITY_MAX = 263, METHOD_MAX = 32, EDIT_ROOM = 32 };

bool exchange_is_framing(struct str name)
{
    static const char names[] =
        "connection content-length host http2-settings keep-alive proxy-connection transfer-encoding";
    return str_word(name, names) >= 0 || (name.n && name.p[0] == ':');
}

bool exchange_is_trailer(struct str name)
{
    static const char names[] = "authorization cookie expect te trailer upgrade cache-control max-forwards range "
                                "content-type content-encoding content-range";
    return !exchange_is_framing(name) && str_word(name, names) < 0 && !str_starts(name, STR("proxy-")) &&
           !str_starts(name, STR("if-")) && override_of(name) == OVERRIDE_NONE;
}

bool exchange_is_refused_method(struct str method)
{
    return str_eq_nocase(method, STR("CONNECT")) || str_eq_nocase(method, STR("TRACE"));
}

static bool is_authority(struct str s)
{
    struct str name;
    uint16_t port;
    if (s.n > AUTHORITY_MAX || str_split_host(s, &name, &port) < 0 || !str_is_of(s, "A-Za-z0-9._:[]-"))
        return false;
    return s.p[s.n - 1] != ':' && (port > 0 || s.p[s.n - 1] == ']' || name.n == s.n);
}

static bool is_path(struct str s)
{
    return s.n > 0 && str_is_of(s, "!\"$-~"); /* visible, without # */
}

const char *exchange_check_target(const struct exchange_head *h)
{
    if (!http_is_token(h->method) || h->method.n > METHOD_MAX)
        return "the method is not valid";
    if (!is_path(h->path) || !(h->path.p[0] == '/' || (str_eqc(h->path, "*") && str_eqc(h->method, "OPTIONS"))))
        return "the path is not valid";
    return NULL;
}

/* In any of the Connection fields. */
static bool connection_names(const struct http_header *raw, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eqc(raw[i].name, "connection") && http_list_has(raw[i].value, name))
            return true;
    }
    return false;
}

static const char *take_host(struct exchange_head *h, struct str value, unsigned *hosts)
{
    if ((*hosts)++)
        return "there are two Host fields";
    if (!is_authority(value))
        return "the Host is not valid";
    if (h->authority.n && !str_eq_nocase(h->authority, value))
        return "the Host is not the request's authority";
    if (!h->authority.n)
        h->authority = value;
    return NULL;
}

const char *exchange_fill_head(struct exchange_head *h, const struct http_header *raw, size_t n)
{
    unsigned hosts = 0;
    bool has_connection = false;
    if (h->authority.n && !is_authority(h->authority))
        return "the authority is not valid";
    h->cap_fields = n + EDIT_ROOM;
    h->fields = arena_alloc(h->arena, h->cap_fields * sizeof(*h->fields));
    for (size_t i = 0; i < n; i++)
        has_connection |= str_eqc(raw[i].name, "connection");
    for (size_t i = 0; i < n; i++) {
        struct str name = raw[i].name, value = raw[i].value;
        if (!http_is_token(name) || !http_is_field_value(value))
            return "a field is not valid";
        if (str_eqc(name, "host")) {
            const char *wrong = take_host(h, value, &hosts);
            if (wrong)
                return wrong;
            continue;
        }
        if (exchange_is_framing(name) || str_starts(name, STR("proxy-")))
            continue;
        if (str_eqc(name, "te")) {
            if (!http_list_has(value, STR("trailers")))
                continue;
            value = STR("trailers");
        } else if (str_eqc(name, "upgrade")) {
            if (!str_eq_nocase(value, STR("websocket")) || !connection_names(raw, n, STR("upgrade")))
                continue;
        } else if (has_connection && connection_names(raw, n, name)) {
            continue;
        }
        h->fields[h->n_fields++] = (struct http_header){name, value};
    }
    return NULL;
}

void exchange_keep_head(struct exchange_head *h)
{
    struct str *texts[] = {&h->method, &h->authority, &h->path};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        *texts[i] = arena_str(h->arena, *texts[i]);
    for (size_t i = 0; i < h->n_fields; i++)
        h->fields[i] =
            (struct http_header){arena_str(h->arena, h->fields[i].name), arena_str(h->arena, h->fields[i].value)};
}

void exchange_remove(struct exchange_head *h, struct str name)
{
    size_t to = 0;
    for (size_t i = 0; i < h->n_fields; i++) {
        if (!str_eq_nocase(h->fields[i].name, name))
            h->fields[to++] = h->fields[i];
    }
    h->n_fields = to;
}

void exchange_set(struct exchange_head *h, struct str name, struct str value)
{
    exchange_remove(h, name);
    char *lower = arena_strndup(h->arena, name.p, name.n);
    for (size_t i = 0; i < name.n; i++)
        lower[i] = (char)(lower[i] >= 'A' && lower[i] <= 'Z' ? lower[i] + ('a' - 'A') : lower[i]);
    if (h->n_fields == h->cap_fields) {
        struct http_header *more = arena_alloc(h->arena, (h->cap_fields + EDIT_ROOM) * sizeof(*more));
        if (h->n_fields)
            memcpy(more, h->fields, h->n_fields * sizeof(*more));
        h->fields = more;
        h->cap_fields += EDIT_ROOM;
    }
    h->fields[h->n_fields++] = (struct http_header){str_n(lower, name.n), arena_str(h->arena, value)};
}

bool exchange_is_sendable(const struct exchange_head *h)
{
    size_t bytes = h->method.n + h->authority.n + h->path.n;
    if (exchange_check_target(h) || exchange_is_refused_method(h->method) ||
        (h->authority.n && !is_authority(h->authority)))
        return false;
    for (size_t i = 0; i < h->n_fields; i++) {
        struct http_header f = h->fields[i];
        if (!http_is_token(f.name) || !http_is_field_value(f.value) || exchange_is_framing(f.name) ||
            (str_eqc(f.name, "upgrade") && !str_eq_nocase(f.value, STR("websocket"))) ||
            (str_eqc(f.name, "te") && !str_eqc(f.value, "trailers")))
            return false;
        bytes += f.name.n + f.value.n;
    }
    return bytes <= END_OUT_MAX / 2;
}

/* ---- refusals ---- */

static const char *refusal_code(int status)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {
        {400, "bad_request"},        {403, "denied"},      {405, "method_not_allowed"}, {408, "timeout"},
        {417, "expectation_failed"}, {421, "misdirected"}, {431, "too_large"},          {500, "internal"},
        {502, "bad_gateway"},        {504, "timeout"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (codes[i].status == status)
            return codes[i].code;
    }
    return "refused";
}

const char *exchange_reason(int status)
{
    return status == 421 ? "Misdirected Request" : http_status_text(status);
}

void exchange_refusal_body(struct buf *b, int status, struct str message)
{
    buf_printf(b, "{\"error\":{\"code\":\"%s\",\"message\":", refusal_code(status));
    buf_append_json_string(b, message);
    buf_append_cstr(b, "}}\n");
}

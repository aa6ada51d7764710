/* SPDX-License-Identifier: Apache-2.0 */
#include "http/url.h"
#include "base/buf.h"

/* The same into room for s.n bytes; returns the length. out may be s.p. */
static ssize_t url_decode_to(struct str s, enum url_form form, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int high = s.n - i > 2 ? str_hex_value(s.p[i + 1]) : -1;
            int low = s.n - i > 2 ? str_hex_value(s.p[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -EINVAL;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && form == URL_QUERY) {
            c = ' ';
        }
        out[n++] = c;
    }
    return (ssize_t)n;
}

int url_decode(struct arena *a, struct str s, enum url_form form, struct str *ret)
{
    if (str_find_char(s, '%') < 0 && (form == URL_PATH || str_find_char(s, '+') < 0)) {
        *ret = s;
        return 0;
    }
    char *out = arena_alloc(a, s.n + 1);
    ssize_t n = url_decode_to(s, form, out);
    if (n < 0)
        return (int)n;
    out[n] = 0;
    *ret = str_n(out, (size_t)n);
    return 0;
}

int url_encode(struct buf *b, struct str s, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (str_set_has(keep_slash ? "A-Za-z0-9._~/-" : "A-Za-z0-9._~-", (char)c)) {
            buf_append_char(b, (char)c);
        } else {
            char escape[3] = {'%', digits[c >> 4], digits[c & 15]};
            buf_append(b, escape, sizeof(escape));
        }
    }
    return buf_error(b);
}

int url_split_target(struct str target, struct str *ret_path, struct str *ret_query)
{
    if (str_eq(target, STR("*"))) {
        *ret_path = target;
        *ret_query = STR("");
        return 0;
    }
    if (str_find_char(target, '#') >= 0)
        return -EINVAL;
    for (size_t i = 0; i < target.n; i++) {
        if ((unsigned char)target.p[i] <= ' ' || target.p[i] == 0x7f)
            return -EINVAL;
    }
    struct str path = target;
    if (target.n == 0)
        return -EINVAL;
    if (target.p[0] != '/') {
        size_t scheme = str_starts(target, STR("http://")) ? 7 : str_starts(target, STR("https://")) ? 8 : 0;
        if (scheme == 0)
            return -EINVAL;
        struct str rest = str_sub(target, scheme);
        size_t host = 0;
        while (host < rest.n && rest.p[host] != '/' && rest.p[host] != '?')
            host++;
        struct str name;
        uint16_t port;
        if (str_split_host(str_n(rest.p, host), &name, &port) < 0)
            return -EINVAL;
        path = str_sub(rest, host);
        if (path.n == 0 || path.p[0] == '?') {
            *ret_path = STR("/");
            *ret_query = path.n ? str_sub(path, 1) : STR("");
            return 0;
        }
    }
    *ret_path = str_before(path, '?');
    *ret_query = ret_path->n < path.n ? str_sub(path, ret_path->n + 1) : STR("");
    return 0;
}

bool url_query_next(struct str *query, struct url_param *ret_param)
{
    struct str part;
    do {
        if (!str_split(query, '&', &part))
            return false;
    } while (part.n == 0);
    ssize_t eq = str_find_char(part, '=');
    ret_param->name = eq < 0 ? part : str_n(part.p, (size_t)eq);
    ret_param->value = eq < 0 ? STR_NULL : str_n(part.p + eq + 1, part.n - (size_t)eq - 1);
    return true;
}

int url_query_get(struct arena *a, struct str query, const char *name, struct str *ret_value)
{
    struct str wanted = str_of(name);
    for (struct url_param p; url_query_next(&query, &p);) {
        struct str key;
        if (p.name.n < wanted.n || url_decode(a, p.name, URL_QUERY, &key) < 0 || !str_eq(key, wanted))
            continue;
        struct str value;
        int r = url_decode(a, p.value.p ? p.value : STR(""), URL_QUERY, &value);
        if (r < 0)
            return r;
        *ret_value = value;
        return 1;
    }
    return 0;
}

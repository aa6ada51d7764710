/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (str_lower(a.p[i]) != str_lower(b.p[i]))
            return false;
    return true;
}

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && (suffix.n == 0 || memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n) == 0);
}

ssize_t str_find_char(struct str s, char c)
{
    const char *p = s.n ? memchr(s.p, c, s.n) : NULL;
    return p ? p - s.p : -1;
}

struct str str_trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

struct str str_sub(struct str s, size_t from)
{
    if (from >= s.n)
        return (struct str){s.p ? s.p + s.n : NULL, 0};
    return (struct str){s.p + from, s.n - from};
}

struct str str_before(struct str s, char c)
{
    ssize_t at = str_find_char(s, c);
    return str_n(s.p, at < 0 ? s.n : (size_t)at);
}

void str_hex(const void *bytes, size_t n, char *ret_text)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = ((const unsigned char *)bytes)[i];
        *ret_text++ = "0123456789abcdef"[c >> 4];
        *ret_text++ = "0123456789abcdef"[c & 15];
    }
    *ret_text = '\0';
}

int str_hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool str_set_has(const char *set, char c)
{
    for (; *set; set += set[1] == '-' && set[2] ? 3 : 1)
        if (set[1] == '-' && set[2] ? c >= set[0] && c <= set[2] : c == set[0])
            return true;
    return false;
}

size_t str_span(struct str s, const char *set)
{
    size_t n = 0;
    while (n < s.n && str_set_has(set, s.p[n]))
        n++;
    return n;
}

bool str_is_of(struct str s, const char *set)
{
    return str_span(s, set) == s.n;
}

size_t str_span_variable(struct str s)
{
    return s.n && str_set_has("0-9", s.p[0]) ? 0 : str_span(s, "A-Za-z0-9_");
}

bool str_is_hex(struct str s)
{
    return str_is_of(s, "0-9a-f");
}

bool str_split(struct str *s, char sep, struct str *ret_part)
{
    if (!s->p)
        return false;
    ssize_t at = str_find_char(*s, sep);
    if (at < 0) {
        *ret_part = *s;
        *s = STR_NULL;
    } else {
        *ret_part = str_n(s->p, (size_t)at);
        *s = str_n(s->p + at + 1, s->n - (size_t)at - 1);
    }
    return true;
}

int str_word(struct str s, const char *words)
{
    struct str rest = str_of(words), word;
    for (int i = 0; str_split(&rest, ' ', &word); i++)
        if (str_eq(s, word))
            return i;
    return -1;
}

int str_to_u64(struct str s, uint64_t *ret_value)
{
    uint64_t v = 0;
    if (s.n == 0)
        return -EINVAL;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(v, 10U, &v) || __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
            return -ERANGE;
    }
    *ret_value = v;
    return 0;
}

int str_to_i64(struct str s, int64_t *ret_value)
{
    bool negative = s.n && s.p[0] == '-';
    uint64_t v;
    int r = str_to_u64(negative ? str_sub(s, 1) : s, &v);
    if (r < 0)
        return r;
    if (v > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return -ERANGE;
    *ret_value = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

bool str_has_nul(struct str s)
{
    return s.n && memchr(s.p, 0, s.n);
}

bool str_is_utf8(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n;) {
        unsigned char c = p[i];
        size_t more;
        uint32_t v, least;
        if (c < 0x80) {
            i++;
            continue;
        } else if ((c & 0xe0) == 0xc0) {
            more = 1, v = c & 0x1fU, least = 0x80;
        } else if ((c & 0xf0) == 0xe0) {
            more = 2, v = c & 0x0fU, least = 0x800;
        } else if ((c & 0xf8) == 0xf0) {
            more = 3, v = c & 0x07U, least = 0x10000;
        } else {
            return false;
        }
        if (s.n - i <= more)
            return false;
        for (size_t k = 1; k <= more; k++) {
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
            v = v << 6 | (p[i + k] & 0x3fU);
        }
        if (v < least || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
            return false;
        i += more + 1;
    }
    return true;
}

bool str_eq_secret(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    volatile unsigned char diff = 0;
    for (size_t i = 0; i < a.n; i++)
        diff |= (unsigned char)(a.p[i] ^ b.p[i]);
    return diff == 0;
}

int str_split_host(struct str host, struct str *ret_name, uint16_t *ret_port)
{
    struct str name, rest;
    if (host.n && host.p[0] == '[') {
        ssize_t end = str_find_char(host, ']');
        if (end < 0)
            return -EINVAL;
        name = str_n(host.p + 1, (size_t)end - 1);
        rest = str_sub(host, (size_t)end + 1);
        if (!str_is_of(name, "0-9A-Fa-f:."))
            return -EINVAL;
    } else {
        ssize_t colon = str_find_char(host, ':');
        name = colon < 0 ? host : str_n(host.p, (size_t)colon);
        rest = colon < 0 ? STR_NULL : str_sub(host, (size_t)colon);
        if (!str_is_of(name, "A-Za-z0-9._~!$&'()*+,;=%-"))
            return -EINVAL;
    }
    uint64_t port = 0;
    if (name.n == 0 || name.n > 255)
        return -EINVAL;
    if (rest.n &&
        (rest.p[0] != ':' || rest.n > 6 || (rest.n > 1 && str_to_u64(str_sub(rest, 1), &port) < 0) || port > 65535))
        return -EINVAL;
    *ret_name = name;
    *ret_port = (uint16_t)port;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/request_path.h"
#include "base/mem.h"

/* What kind of server reads: bits of a reading's number. */
enum { DECODES_SLASH = 1, CUTS_PARAMETERS = 2, MERGES_SLASHES = 4 };

static const char hex_digits[] = "0123456789ABCDEF";

/* The value of "%XX" at i, or -1. */
static int encoded_at(struct str s, size_t i)
{
    if (s.n - i < 3 || s.p[i] != '%' || str_hex_value(s.p[i + 1]) < 0 || str_hex_value(s.p[i + 2]) < 0)
        return -1;
    return str_hex_value(s.p[i + 1]) << 4 | str_hex_value(s.p[i + 2]);
}

/* pchar of RFC 3986, section 3.3, without "%". */
#define PLAIN "A-Za-z0-9._~!$&'()*+,;=:@-"

struct text {
    char *p;
    size_t n; /* never above REQUEST_PATH_MAX */
};

static bool request_path_append(struct text *to, const void *p, size_t n)
{
    if (REQUEST_PATH_MAX - to->n < n)
        return false;
    memcpy(to->p + to->n, p, n);
    to->n += n;
    return true;
}

static bool append_canonical(struct text *to, unsigned char c)
{
    const char encoded[3] = {'%', hex_digits[c >> 4], hex_digits[c & 15]};
    return str_set_has(PLAIN, (char)c) ? request_path_append(to, &c, 1) : request_path_append(to, encoded, 3);
}

/* Every byte in its one form; slashes stay as they were, "/" or "%2F". */
static bool canonicalise(struct str raw, struct text *to)
{
    char decoded[REQUEST_PATH_MAX];
    size_t n = 0;
    if (raw.n == 0 || raw.n > REQUEST_PATH_MAX || raw.p[0] != '/')
        return false;
    for (size_t i = 0; i < raw.n; i++) {
        unsigned char c = (unsigned char)raw.p[i];
        if (c == '/') {
            decoded[n++] = '/';
            if (!request_path_append(to, "/", 1))
                return false;
            continue;
        }
        if (c == '%') {
            int value = encoded_at(raw, i);
            if (value < 0)
                return false;
            c = (unsigned char)value;
            i += 2;
        } else if (c <= ' ' || c >= 0x7f || c == '#') {
            return false;
        }
        if (c < ' ' || c == 0x7f || c == '\\' || !append_canonical(to, c))
            return false;
        decoded[n++] = (char)c;
    }
    for (size_t i = 0; i < n; i++)
        if (encoded_at(str_n(decoded, n), i) >= 0) /* encoded twice */
            return false;
    return str_is_utf8(str_n(decoded, n));
}

/* Cuts the segment up to the next separator off *rest. False: it was the last one. */
static bool next_segment(struct str *rest, unsigned reading, struct str *ret_segment)
{
    for (size_t i = 0; i < rest->n; i++) {
        size_t width = rest->p[i] == '/' ? 1 : (reading & DECODES_SLASH) && encoded_at(*rest, i) == '/' ? 3 : 0;
        if (width > 0) {
            *ret_segment = str_n(rest->p, i);
            *rest = str_sub(*rest, i + width);
            return true;
        }
    }
    *ret_segment = *rest;
    return false;
}

static void remove_last(struct text *path)
{
    while (path->n > 0 && path->p[--path->n] != '/')
        ;
}

/* RFC 3986, section 5.2.4, as this kind of server sees segments. What it writes is never longer than what it reads. */
static void read_as(struct str canonical, unsigned reading, struct text *to)
{
    struct str rest = str_sub(canonical, 1), segment;
    bool is_last = false;
    while (!is_last) {
        is_last = !next_segment(&rest, reading, &segment);
        if (reading & CUTS_PARAMETERS) {
            segment = str_before(segment, ';');
        }
        if (str_eq(segment, STR("..")) || str_eq(segment, STR("."))) {
            if (segment.n == 2)
                remove_last(to);
            segment.n = 0;
            if (!is_last)
                continue;
        }
        if (segment.n == 0 && !is_last && (reading & MERGES_SLASHES))
            continue;
        assert(to->n + 1 + segment.n <= canonical.n);
        to->p[to->n++] = '/';
        if (segment.n > 0)
            memcpy(to->p + to->n, segment.p, segment.n);
        to->n += segment.n;
    }
}

static bool is_ambiguous(struct str canonical)
{
    return memchr(canonical.p, ';', canonical.n) || memmem(canonical.p, canonical.n, "//", 2) ||
           memmem(canonical.p, canonical.n, "%2F", 3);
}

bool request_path_read(struct str raw, struct request_path *ret_path)
{
    char bytes[REQUEST_PATH_MAX];
    struct text canonical = {bytes, 0};
    const char *query = raw.n ? memchr(raw.p, '?', raw.n) : NULL;
    ret_path->n = 0;
    if (query)
        raw.n = (size_t)(query - raw.p);
    if (!canonicalise(raw, &canonical))
        return false;
    ret_path->n = is_ambiguous(str_n(bytes, canonical.n)) ? REQUEST_PATH_READINGS : 1;
    for (unsigned i = 0; i < ret_path->n; i++) {
        struct text to = {ret_path->text[i], 0};
        read_as(str_n(bytes, canonical.n), i, &to);
        ret_path->readings[i] = str_n(to.p, to.n);
    }
    return true;
}

/* A dot segment in any reading: then the canonical text and its reading are not the same kind of thing. */
static bool has_dot_segment(struct str canonical)
{
    struct str rest = str_sub(canonical, 1), segment;
    bool is_last = false;
    while (!is_last) {
        is_last = !next_segment(&rest, DECODES_SLASH, &segment);
        segment = str_before(segment, ';');
        if (str_eq(segment, STR(".")) || str_eq(segment, STR("..")))
            return true;
    }
    return false;
}

bool path_pattern_parse(struct str text, struct arena *arena, struct path_pattern *ret_pattern)
{
    char bytes[REQUEST_PATH_MAX];
    struct text canonical = {bytes, 0};
    struct path_pattern pattern = {.is_prefix = text.n > 0 && text.p[text.n - 1] == '*'};
    AUTO_FREE struct request_path *path = NULL;
    if (pattern.is_prefix)
        text.n--;
    if (text.n == 0 || memchr(text.p, '?', text.n) || !canonicalise(text, &canonical) ||
        memchr(bytes, '*', canonical.n) || has_dot_segment(str_n(bytes, canonical.n)))
        return false;
    path = mem_new(struct request_path);
    if (!request_path_read(str_n(bytes, canonical.n), path))
        return false;
    pattern.n = (uint8_t)path->n;
    for (size_t i = 0; i < path->n; i++)
        pattern.readings[i] = arena_str(arena, path->readings[i]);
    pattern.text = arena_printf(arena, "%.*s%s", (int)canonical.n, bytes, pattern.is_prefix ? "*" : "");
    *ret_pattern = pattern;
    return true;
}

static bool request_path_matches(const struct path_pattern *pattern, const struct request_path *path, size_t reading)
{
    struct str have = path->readings[path->n == 1 ? 0 : reading];
    struct str want = pattern->readings[pattern->n == 1 ? 0 : reading];
    return pattern->is_prefix ? str_starts(have, want) : str_eq(have, want);
}

bool path_pattern_matches_all(const struct path_pattern *pattern, const struct request_path *path)
{
    size_t n = MAX(path->n, (size_t)pattern->n);
    if (path->n == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!request_path_matches(pattern, path, i))
            return false;
    return true;
}

bool path_pattern_matches_any(const struct path_pattern *pattern, const struct request_path *path)
{
    size_t n = MAX(path->n, (size_t)pattern->n);
    if (path->n == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        if (request_path_matches(pattern, path, i))
            return true;
    return false;
}

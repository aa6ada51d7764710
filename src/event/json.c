/* SPDX-License-Identifier: Apache-2.0 */
#include "event/json.h"

struct scan {
    const char *p, *end;
    struct buf *out; /* NULL: only looks */
    int depth;
    bool has_blanks;
};

static int value(struct scan *s);

static bool at(const struct scan *s, char c)
{
    return s->p < s->end && *s->p == c;
}

static bool digit(const struct scan *s)
{
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

static void blanks(struct scan *s)
{
    for (; s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'); s->p++)
        s->has_blanks = true;
}

static int copy(struct scan *s, const char *from)
{
    return s->out ? buf_append(s->out, from, (size_t)(s->p - from)) : 0;
}

static int json_take(struct scan *s, char c)
{
    if (!at(s, c))
        return -EILSEQ;
    s->p++;
    return copy(s, s->p - 1);
}

static int hex4(struct scan *s, unsigned *ret_v)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        int digit = s->p < s->end ? str_hex_value(*s->p) : -1;
        if (digit < 0)
            return -EILSEQ;
        v = v << 4 | (unsigned)digit;
    }
    *ret_v = v;
    return 0;
}

/* Behind "\u". Half a surrogate pair is no character; most readers choke on it. */
static int unicode_escape(struct scan *s)
{
    unsigned v, low;
    if (hex4(s, &v) < 0 || (v >= 0xdc00 && v <= 0xdfff))
        return -EILSEQ;
    if (v < 0xd800 || v > 0xdbff)
        return 0;
    if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
        return -EILSEQ;
    s->p += 2;
    return hex4(s, &low) < 0 || low < 0xdc00 || low > 0xdfff ? -EILSEQ : 0;
}

static int string(struct scan *s)
{
    static const char escapes[] = {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'};
    const char *from = s->p;
    if (!at(s, '"'))
        return -EILSEQ;
    s->p++;
    for (;;) {
        if (s->p >= s->end || (unsigned char)*s->p < 0x20)
            return -EILSEQ;
        char c = *s->p++;
        if (c == '"')
            break;
        if (c != '\\')
            continue;
        if (s->p >= s->end)
            return -EILSEQ;
        c = *s->p++;
        if (c == 'u' ? unicode_escape(s) < 0 : !memchr(escapes, c, sizeof(escapes)))
            return -EILSEQ;
    }
    return str_is_utf8(str_n(from, (size_t)(s->p - from))) ? copy(s, from) : -EILSEQ;
}

static int digits(struct scan *s)
{
    if (!digit(s))
        return -EILSEQ;
    while (digit(s))
        s->p++;
    return 0;
}

static int json_number(struct scan *s)
{
    const char *from = s->p;
    if (at(s, '-'))
        s->p++;
    if (at(s, '0'))
        s->p++;
    else if (digits(s) < 0)
        return -EILSEQ;
    if (at(s, '.')) {
        s->p++;
        if (digits(s) < 0)
            return -EILSEQ;
    }
    if (at(s, 'e') || at(s, 'E')) {
        s->p++;
        if (at(s, '+') || at(s, '-'))
            s->p++;
        if (digits(s) < 0)
            return -EILSEQ;
    }
    return copy(s, from);
}

static int word(struct scan *s, struct str w)
{
    const char *from = s->p;
    if (!str_starts(str_n(s->p, (size_t)(s->end - s->p)), w))
        return -EILSEQ;
    s->p += w.n;
    return copy(s, from);
}

static int member(struct scan *s)
{
    int r = string(s);
    blanks(s);
    if (r == 0)
        r = json_take(s, ':');
    blanks(s);
    return r < 0 ? r : value(s);
}

static int json_list(struct scan *s, char open, char close, int (*item)(struct scan *))
{
    int r = json_take(s, open);
    if (r < 0)
        return r;
    if (++s->depth > EVENT_JSON_DEPTH_MAX)
        return -EILSEQ;
    blanks(s);
    if (!at(s, close)) {
        for (;;) {
            if ((r = item(s)) < 0)
                return r;
            blanks(s);
            if (!at(s, ','))
                break;
            if ((r = json_take(s, ',')) < 0)
                return r;
            blanks(s);
        }
    }
    s->depth--;
    return json_take(s, close);
}

static int value(struct scan *s)
{
    if (s->p >= s->end)
        return -EILSEQ;
    switch (*s->p) {
    case '{':
        return json_list(s, '{', '}', member);
    case '[':
        return json_list(s, '[', ']', value);
    case '"':
        return string(s);
    case 't':
        return word(s, STR("true"));
    case 'f':
        return word(s, STR("false"));
    case 'n':
        return word(s, STR("null"));
    default:
        return json_number(s);
    }
}

static int json_scan(struct scan *s)
{
    blanks(s);
    int r = value(s);
    blanks(s);
    return r == 0 && s->p != s->end ? -EILSEQ : r;
}

int json_compact(struct str text, struct buf *b)
{
    if (text.n == 0)
        return -EILSEQ;
    struct scan looks = {.p = text.p, .end = text.p + text.n};
    int r = json_scan(&looks);
    if (r < 0 || !looks.has_blanks)
        return r < 0 ? r : buf_append_str(b, text);
    struct scan copies = {.p = text.p, .end = text.p + text.n, .out = b};
    return json_scan(&copies);
}

bool json_member(struct str object, const char *name, struct str *ret_value)
{
    if (object.n == 0 || object.p[0] != '{')
        return false;
    struct scan s = {.p = object.p, .end = object.p + object.n};
    s.p++;
    while (at(&s, '"')) {
        const char *from = s.p;
        if (string(&s) < 0 || json_take(&s, ':') < 0)
            return false;
        bool wanted = str_eqc(str_n(from + 1, (size_t)(s.p - from) - 3), name);
        from = s.p;
        if (value(&s) < 0)
            return false;
        if (wanted) {
            *ret_value = str_n(from, (size_t)(s.p - from));
            return true;
        }
        if (!at(&s, ','))
            return false;
        s.p++;
    }
    return false;
}

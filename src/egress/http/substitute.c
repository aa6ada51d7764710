/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/http/substitute.h"

/* Where each occurs next; NULL: no more. */
struct substitute_walk {
    const struct substitute *all;
    size_t n;
    const char *next[SUBSTITUTES_MAX];
};

static const char *substitute_next(struct str text, const struct substitute *one)
{
    return text.n ? memmem(text.p, text.n, one->placeholder.p, one->placeholder.n) : NULL;
}

static void substitute_begin(struct substitute_walk *w, struct str text, const struct substitute *all, size_t n)
{
    assert(n <= SUBSTITUTES_MAX);
    *w = (struct substitute_walk){.all = all, .n = n};
    for (size_t i = 0; i < n; i++)
        w->next[i] = substitute_next(text, &all[i]);
}

/* The first one that is left, and the longest of those; NULL: none. *text is cut behind it. */
static const struct substitute *substitute_step(struct substitute_walk *w, struct str *text, struct str *ret_before)
{
    size_t best = w->n;
    for (size_t i = 0; i < w->n; i++) {
        if (w->next[i] && w->next[i] < text->p)
            w->next[i] = substitute_next(*text, &w->all[i]);
        if (!w->next[i])
            continue;
        if (best == w->n || w->next[i] < w->next[best] ||
            (w->next[i] == w->next[best] && w->all[i].placeholder.n > w->all[best].placeholder.n))
            best = i;
    }
    *ret_before = str_n(text->p, best < w->n ? (size_t)(w->next[best] - text->p) : text->n);
    if (best == w->n)
        return NULL;
    *text = str_sub(*text, ret_before->n + w->all[best].placeholder.n);
    return &w->all[best];
}

/* ---- encodings ---- */

/* Up to six bytes for one. */
static size_t substitute_encode(char c, enum substitute_code code, char out[static 6])
{
    static const char hex[] = "0123456789ABCDEF";
    const unsigned byte = (unsigned char)c;
    const char high = hex[byte >> 4], low = hex[byte & 15];
    out[0] = c;
    if (code == SUBSTITUTE_FORM && c == ' ') {
        out[0] = '+';
        return 1;
    }
    if ((code == SUBSTITUTE_URL || code == SUBSTITUTE_FORM) && !str_set_has("A-Za-z0-9._~-", c)) {
        out[0] = '%';
        out[1] = high;
        out[2] = low;
        return 3;
    }
    if (code == SUBSTITUTE_JSON && (c == '"' || c == '\\')) {
        out[0] = '\\';
        out[1] = c;
        return 2;
    }
    if (code == SUBSTITUTE_JSON && byte < ' ') {
        memcpy(out, (const char[]){'\\', 'u', '0', '0'}, 4);
        out[4] = high;
        out[5] = low;
        return 6;
    }
    return 1;
}

/* to NULL: only how long it is. */
static size_t substitute_put(struct str value, enum substitute_code code, struct buf *to)
{
    char out[6];
    size_t all = 0;
    for (size_t i = 0; i < value.n; i++) {
        size_t n = substitute_encode(value.p[i], code, out);
        if (to)
            (void)buf_append(to, out, n);
        all += n;
    }
    memset(out, 0, sizeof(out));
    return all;
}

bool substitute_code_of(struct str content_type, enum substitute_code *ret_code)
{
    struct str type = str_trim(str_before(content_type, ';'));
    static const struct str json = {"+json", 5};
    *ret_code = SUBSTITUTE_RAW;
    if (str_eq_nocase(type, STR("application/json")) ||
        (type.n > json.n && str_eq_nocase(str_sub(type, type.n - json.n), json)))
        *ret_code = SUBSTITUTE_JSON;
    else if (str_eq_nocase(type, STR("application/x-www-form-urlencoded")))
        *ret_code = SUBSTITUTE_FORM;
    return type.n < 10 || !str_eq_nocase(str_n(type.p, 10), STR("multipart/"));
}

unsigned substitute_find(struct str text, const struct substitute *all, size_t n)
{
    unsigned found = 0;
    for (size_t i = 0; i < n; i++)
        found |= substitute_next(text, &all[i]) ? 1u << i : 0;
    return found;
}

int substitute(struct str text, const struct substitute *all, size_t n, enum substitute_code code, struct buf *to)
{
    struct substitute_walk w;
    struct str rest = text, before;
    size_t length = 0, lengths[SUBSTITUTES_MAX] = {0};
    for (size_t i = 0; i < n; i++)
        lengths[i] = substitute_put(all[i].value, code, NULL);
    substitute_begin(&w, rest, all, n);
    for (const struct substitute *one; (one = substitute_step(&w, &rest, &before));) {
        length += before.n + lengths[one - all];
        if (length > to->max)
            return -ENOBUFS;
    }
    length += before.n;
    if (!buf_reserve(to, length ? length : 1))
        return buf_error(to);
    rest = text;
    substitute_begin(&w, rest, all, n);
    for (const struct substitute *one; (one = substitute_step(&w, &rest, &before));) {
        (void)buf_append_str(to, before);
        (void)substitute_put(one->value, code, to);
    }
    (void)buf_append_str(to, before);
    return buf_error(to);
}

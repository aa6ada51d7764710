/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = BUF_INIT(max_bytes);
}

void buf_fini(struct buf *b)
{
    free(b->data);
    *b = BUF_INIT(b->max);
}

void buf_clear(struct buf *b)
{
    b->start = b->end = 0;
    b->error = 0;
}

char *buf_reserve(struct buf *b, size_t n)
{
    size_t len = buf_len(b);
    if (b->error)
        return NULL;
    if (n > b->max || len > b->max - n) {
        b->error = -ENOBUFS;
        return NULL;
    }
    if (b->cap - b->end >= n && b->data)
        return b->data + b->end;
    /* Moving down is cheaper than growing when at least half of the memory was consumed already. */
    if (b->start && b->cap - len >= n && b->start >= b->cap / 2) {
        memmove(b->data, b->data + b->start, len);
        b->start = 0;
        b->end = len;
        return b->data + b->end;
    }
    size_t want = MAX(len + n, MIN(b->max, MAX((size_t)64, b->cap * 2)));
    char *p = malloc(want);
    if (!p) {
        b->error = -ENOMEM;
        return NULL;
    }
    if (len)
        memcpy(p, b->data + b->start, len);
    free(b->data);
    b->data = p;
    b->cap = want;
    b->start = 0;
    b->end = len;
    return p + len;
}

void buf_commit(struct buf *b, size_t n)
{
    assert(n <= b->cap - b->end);
    b->end += n;
}

int buf_append(struct buf *b, const void *p, size_t n)
{
    char *to = buf_reserve(b, n);
    if (!to)
        return b->error;
    if (n)
        memcpy(to, p, n);
    b->end += n;
    return 0;
}

int buf_append_str(struct buf *b, struct str s)
{
    return buf_append(b, s.p, s.n);
}

int buf_append_cstr(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_append_char(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->error = b->error ? b->error : -EINVAL;
        va_end(again);
        return b->error;
    }
    /* vsnprintf() wants room for its NUL, which is not part of the text: one byte beyond the maximum is tolerated
     * here. */
    size_t max = b->max;
    b->max = max < SIZE_MAX ? max + 1 : max;
    char *to = buf_reserve(b, (size_t)n + 1);
    b->max = max;
    if (to) {
        (void)vsnprintf(to, (size_t)n + 1, fmt, again);
        b->end += (size_t)n;
    }
    va_end(again);
    return b->error;
}

int buf_append_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return buf_append(b, digits + at, sizeof(digits) - at);
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= buf_len(b));
    b->start += n;
    if (b->start == b->end)
        b->start = b->end = 0;
}

char *buf_take(struct buf *b)
{
    if (b->error)
        return NULL;
    size_t n = buf_len(b);
    char *p = mem_alloc(n + 1);
    if (n)
        memcpy(p, b->data + b->start, n);
    p[n] = 0;
    buf_fini(b);
    return p;
}

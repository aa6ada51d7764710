/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/mem.h"

#include <stdlib.h>

enum { ARENA_ALIGN = 16, ARENA_BLOCK = 2048 };

struct arena_block {
    struct arena_block *next;
    size_t used, cap;
    size_t pad;
    char data[];
};

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX / 2)
        abort();
    n = (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    struct arena_block *b = a->head;
    if (!b || b->cap - b->used < n) {
        size_t cap = MAX(n, (size_t)ARENA_BLOCK);
        b = mem_zalloc(sizeof(*b) + cap);
        b->cap = cap;
        /* A large one goes behind the current block, which may have room left. */
        if (a->head && n > ARENA_BLOCK / 2) {
            b->next = a->head->next;
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    void *p = b->data + b->used;
    b->used += n;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *arena_strdup(struct arena *a, const char *text)
{
    return text ? arena_strndup(a, text, strlen(text)) : NULL;
}

struct str arena_str(struct arena *a, struct str s)
{
    return str_n(arena_strndup(a, s.p, s.n), s.n);
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    char *p = arena_alloc(a, (size_t)n + 1);
    (void)vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void arena_wipe(struct arena *a)
{
    for (struct arena_block *b = a->head; b; b = b->next)
        mem_wipe(b->data, b->used);
    arena_fini(a);
}

void arena_fini(struct arena *a)
{
    for (struct arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    a->head = NULL;
}

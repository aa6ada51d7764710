/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p, size_t n)
{
    if (!p && n)
        abort();
    return p;
}

void *mem_alloc(size_t n)
{
    return checked(malloc(n ? n : 1), n);
}

void *mem_zalloc(size_t n)
{
    return checked(calloc(1, n ? n : 1), n);
}

void *mem_array(size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n))
        abort();
    return mem_zalloc(n);
}

void *mem_realloc(void *p, size_t n)
{
    return checked(realloc(p, n ? n : 1), n);
}

void *mem_dup(const void *p, size_t n)
{
    void *q = mem_alloc(n);
    if (n)
        memcpy(q, p, n);
    return q;
}

char *mem_strdup(const char *s)
{
    return s ? mem_dup(s, strlen(s) + 1) : NULL;
}

char *mem_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *q = mem_alloc(len + 1);
    memcpy(q, s, len);
    q[len] = 0;
    return q;
}

char *mem_vprintf(const char *fmt, va_list args)
{
    char *s = NULL;
    if (vasprintf(&s, fmt, args) < 0)
        abort();
    return s;
}

char *mem_printf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *s = mem_vprintf(fmt, args);
    va_end(args);
    return s;
}

void mem_free(void *p)
{
    free(p);
}

void mem_free_all(const void *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free((void *)(uintptr_t)all[i]);
}

void mem_wipe(void *p, size_t n)
{
    explicit_bzero(p, n);
}

void mem_free_wiped(void *p)
{
    if (p)
        mem_wipe(p, malloc_usable_size(p));
    free(p);
}

void mem_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

void mem_trim_after(size_t *peak, size_t now)
{
    enum { CROWD = 256 };
    *peak = MAX(*peak, now);
    if (*peak < CROWD || now > *peak / 4)
        return;
    *peak = now;
    mem_trim();
}

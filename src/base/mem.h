/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heap memory. These never return NULL: running out of memory for a bounded object of ours is not survivable and
 * aborts. A size that somebody else chooses is bounded by its caller first (see buf.h, which returns -ENOBUFS and
 * -ENOMEM instead).
 */
#pragma once

#include "base/def.h"

void *mem_alloc(size_t n);                  /* uninitialised */
void *mem_zalloc(size_t n);                 /* zeroed */
void *mem_array(size_t count, size_t size); /* zeroed; aborts on overflow */
void *mem_realloc(void *p, size_t n);
void *mem_dup(const void *p, size_t n);
char *mem_strdup(const char *s);            /* NULL stays NULL */
char *mem_strndup(const char *s, size_t n); /* copies at most n bytes, always terminates */
char *mem_printf(const char *fmt, ...) PRINTF_LIKE(1, 2);
char *mem_vprintf(const char *fmt, va_list args) PRINTF_LIKE(1, 0);
void mem_free(void *p);
void mem_free_all(const void *const *all, size_t n);
#define MEM_FREE(...)                                                                                                  \
    mem_free_all((const void *const[]){__VA_ARGS__}, sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *))

/* Clears memory that held a secret; the compiler can't leave it out. */
void mem_wipe(void *p, size_t n);
void mem_free_wiped(void *p); /* all of it first; for libraries that free what may be a secret */

/*
 * Gives freed memory back to the system after a crowd (of connections, say) has left; libc keeps it for as long as
 * anything that was allocated later is in use. To be called now and then with how many there are: what was freed goes
 * back when three quarters of the most there were are gone. *peak begins as 0 and is this function's.
 */
void mem_trim_after(size_t *peak, size_t now);
void mem_trim(void); /* at once */

static inline UNUSED void mem_free_auto_(void *p)
{
    mem_free(*(void **)p);
}
#define AUTO_FREE __attribute__((cleanup(mem_free_auto_)))

#define mem_new(type) ((type *)mem_zalloc(sizeof(type)))

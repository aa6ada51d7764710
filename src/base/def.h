/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few macros that every file uses: ownership at scope end, hand-over, attributes, sizes.
 *
 *   AUTO_FREE char *p = NULL;      freed by mem_free() when the scope ends
 *   AUTO_CLOSE int fd = -1;        closed when the scope ends
 *   AUTO(thing_free) struct thing *t = NULL;   any function taking the pointer's value
 *   return TAKE_PTR(p);            hands out, leaves NULL behind        (TAKE_FD: -1)
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define WARN_UNUSED __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define UNUSED __attribute__((unused))
#define NORETURN __attribute__((noreturn))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define TAKE_PTR(p)                                                                                                    \
    __extension__({                                                                                                    \
        __typeof__(p) take_ptr_ = (p);                                                                                 \
        (p) = NULL;                                                                                                    \
        take_ptr_;                                                                                                     \
    })

#define TAKE_FD(fd)                                                                                                    \
    __extension__({                                                                                                    \
        int take_fd_ = (fd);                                                                                           \
        (fd) = -1;                                                                                                     \
        take_fd_;                                                                                                      \
    })

/*
 * In a function of printf's kind: what `fmt` and the arguments behind it say, into an array of characters; what has no
 * room is cut off.
 */
#define FORMAT_ARGS(array, fmt)                                                                                        \
    do {                                                                                                               \
        va_list format_args_;                                                                                          \
        va_start(format_args_, fmt);                                                                                   \
        (void)vsnprintf((array), sizeof(array), fmt, format_args_);                                                    \
        va_end(format_args_);                                                                                          \
    } while (0)

/* A function that takes the pointer itself and accepts NULL: DEFINE_AUTO(struct thing *, thing_free) makes
 * AUTO(thing_free) usable. */
#define DEFINE_AUTO(type, fn)                                                                                          \
    static inline UNUSED void fn##_auto_(type *p)                                                                      \
    {                                                                                                                  \
        if (*p)                                                                                                        \
            fn(*p);                                                                                                    \
    }
#define AUTO(fn) __attribute__((cleanup(fn##_auto_)))

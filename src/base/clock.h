/* SPDX-License-Identifier: Apache-2.0 */
/* Time in microseconds. Durations and deadlines use the monotonic clock, what people read uses the real one. */
#pragma once

#include "base/str.h"

typedef uint64_t usec_t;

#define USEC_PER_SEC 1000000ULL
#define USEC_PER_MS 1000ULL

usec_t clock_mono(void);
usec_t clock_real(void); /* since 1970-01-01 UTC */

enum { CLOCK_TEXT_MAX = 32 };

/* "2026-11-21T10:03:07.123456Z": RFC 3339 in UTC with `digits` (0 to 6) digits of the second's fraction. */
void clock_format(usec_t real, int digits, char ret_text[static CLOCK_TEXT_MAX]);

/* RFC 3339, from 1970 on, with any offset and up to 9 digits of fraction (cut to microseconds); -EINVAL else. */
int clock_parse(struct str s, usec_t *ret_real) WARN_UNUSED;

/* That time and so many milliseconds, which somebody else chose: at most the end of time. */
static inline usec_t clock_add_ms(usec_t from, uint64_t ms)
{
    return ms > (UINT64_MAX - from) / USEC_PER_MS ? UINT64_MAX : from + ms * USEC_PER_MS;
}

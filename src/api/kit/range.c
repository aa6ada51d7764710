/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/range.h"

#include <inttypes.h>

int range_one(struct str spec, uint64_t size, struct range *ret_range)
{
    struct str first, last = spec;
    uint64_t from, to = size - 1;
    if (!str_split(&last, '-', &first) || !last.p)
        return -1;
    first = str_trim(first);
    last = str_trim(last);
    if (first.n == 0) {
        uint64_t n;
        if (str_to_u64(last, &n) < 0)
            return -1;
        if (n == 0)
            return 0;
        from = n < size ? size - n : 0;
    } else {
        if (str_to_u64(first, &from) < 0 || (last.n && (str_to_u64(last, &to) < 0 || to < from)))
            return -1;
        if (from >= size)
            return 0;
        to = MIN(to, size - 1);
    }
    *ret_range = (struct range){from, to - from + 1};
    return 1;
}

enum range_result range_parse(struct str value, uint64_t size, struct range ret_ranges[static RANGES_MAX],
                              size_t *ret_n)
{
    uint64_t sum = 0;
    struct str list, spec;
    size_t n = 0;
    if (size == 0 || value.n < 6 || !str_eq_nocase(str_n(value.p, 6), STR("bytes=")))
        return RANGE_WHOLE;
    list = str_sub(value, 6);
    while (str_split(&list, ',', &spec)) {
        struct range range;
        int r = str_trim(spec).n ? range_one(str_trim(spec), size, &range) : 0;
        if (r < 0)
            return RANGE_UNSATISFIABLE;
        if (r == 0)
            continue;
        if (n == RANGES_MAX || range.length > size - sum)
            return RANGE_WHOLE;
        sum += range.length;
        ret_ranges[n++] = range;
    }
    *ret_n = n;
    return n ? RANGE_PART : RANGE_UNSATISFIABLE;
}

struct str range_content(struct arena *arena, const struct range *part, uint64_t size)
{
    if (!part)
        return str_of(arena_printf(arena, "bytes */%" PRIu64, size));
    return str_of(arena_printf(arena, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, part->offset,
                               part->offset + part->length - 1, size));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/range.h"

enum range_result range_parse(struct str value, uint64_t size, uint64_t *ret_offset, uint64_t *ret_length)
{
    struct str spec, first, last;
    uint64_t from, to;
    ssize_t dash;

    if (size == 0 || value.n < 6 || !str_eq_nocase(str_n(value.p, 6), STR("bytes=")))
        return RANGE_WHOLE;
    spec = str_sub(value, 6);
    if (str_find_char(spec, ',') >= 0)
        return RANGE_WHOLE;
    dash = str_find_char(spec, '-');
    if (dash < 0)
        return RANGE_UNSATISFIABLE;
    first = str_trim(str_n(spec.p, (size_t)dash));
    last = str_trim(str_sub(spec, (size_t)dash + 1));

    if (first.n == 0) {
        if (str_to_u64(last, &to) < 0 || to == 0)
            return RANGE_UNSATISFIABLE;
        from = to < size ? size - to : 0;
        to = size - 1;
    } else {
        if (str_to_u64(first, &from) < 0 || from >= size)
            return RANGE_UNSATISFIABLE;
        if (last.n == 0)
            to = size - 1;
        else if (str_to_u64(last, &to) < 0 || to < from)
            return RANGE_UNSATISFIABLE;
        to = MIN(to, size - 1);
    }
    *ret_offset = from;
    *ret_length = to - from + 1;
    return RANGE_PART;
}

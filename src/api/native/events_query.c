/* SPDX-License-Identifier: Apache-2.0 */
#include "api/native/events_query.h"

int events_next_parse(struct str last_event_id, uint64_t *ret_next)
{
    uint64_t last;
    if (str_to_u64(last_event_id, &last) < 0 || last == UINT64_MAX)
        return -EINVAL;
    *ret_next = last + 1;
    return 0;
}

bool events_kind_fits(struct str kinds, struct str kind)
{
    struct str one;
    bool any = false;
    while (str_split(&kinds, ',', &one)) {
        if (one.n && str_starts(kind, one))
            return true;
        any = any || one.n;
    }
    return !any;
}

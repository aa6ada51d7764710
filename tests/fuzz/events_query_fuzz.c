/* SPDX-License-Identifier: Apache-2.0 */
/* Where a follower says that it was, and which kinds it wants: the first line is a Last-Event-ID, the second the kinds,
 * the rest a kind. */
#include "api/native/events_query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size), id = STR_NULL, kinds = STR_NULL, again;
    uint64_t next = 0;
    (void)str_split(&rest, '\n', &id);
    (void)str_split(&rest, '\n', &kinds);
    if (events_next_parse(id, &next) == 0) {
        assert(next > 0 && id.n > 0);
        for (size_t i = 0; i < id.n; i++)
            assert(id.p[i] >= '0' && id.p[i] <= '9');
    }
    if (!events_kind_fits(kinds, rest))
        assert(kinds.n > 0);
    else if (str_split(&kinds, ',', &again) && again.n && str_starts(rest, again))
        assert(events_kind_fits(again, rest));
    return 0;
}

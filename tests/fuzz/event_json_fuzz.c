/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of an event's data: what is accepted is one line of UTF-8 that is accepted again as it is. */
#include "event/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf once = BUF_INIT(1 << 16), twice = BUF_INIT(1 << 16);
    struct str text = str_n(data, size), value;
    int r = json_compact(text, &once);
    (void)json_member(text, "cause", &value); /* on anything */
    if (r < 0)
        return 0;
    struct str s = buf_str(&once);
    if (s.n == 0 || s.n > size || memchr(s.p, '\n', s.n) || !str_is_utf8(s) || json_compact(s, &twice) < 0 ||
        !str_eq(s, buf_str(&twice)))
        abort();
    if (json_member(s, "cause", &value)) {
        buf_clear(&twice);
        if (value.p < s.p || value.p + value.n > s.p + s.n || json_compact(value, &twice) < 0)
            abort();
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A client's trace context, which enters the record without being escaped: what is taken is taken apart again, and
 * stands in the JSON of an event as it is. */
#include "base/mem.h"
#include "event/event.h"
#include "event/json.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_n(data, size), value;
    AUTO_BUF struct buf b = BUF_INIT(256), compact = BUF_INIT(256);
    if (!event_is_traceparent(text))
        return 0;
    const size_t lengths[] = {2, 32, 16, 2};
    struct str rest = text, part = STR_NULL;
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        bool more = str_split(&rest, '-', &part);
        AUTO_FREE char *copy = mem_strndup(part.p, part.n);
        assert(more && part.n == lengths[i] && strspn(copy, "0123456789abcdef") == part.n);
        assert(i == 0 ? str_eqc(part, "00") : i == 3 || strspn(copy, "0") < part.n);
    }
    assert(!rest.p);
    buf_printf(&b, "{\"traceparent\":\"%.*s\"}", STR_ARG(text));
    int n = json_compact(buf_str(&b), &compact);
    assert(n == 0 && str_eq(buf_str(&b), buf_str(&compact)));
    bool found = json_member(buf_str(&compact), "traceparent", &value);
    assert(found && str_eq(str_n(value.p + 1, value.n - 2), text));
    /* A piece of one, and one with something behind it, are none. */
    assert(!event_is_traceparent(str_n(text.p, text.n - 1)) && !event_is_traceparent(str_sub(text, 1)));
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Frame headers and the reader of payloads: nothing beyond the input is read, what was read can be written again and is
 * the same. */
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void header(const uint8_t *data)
{
    struct wire_frame f = {0};
    uint8_t again[WIRE_HEADER_SIZE];
    if (wire_header_get(data, &f) < 0)
        return;
    wire_header_put(&f, again);
    if (f.size > WIRE_PAYLOAD_MAX || memcmp(data, again, sizeof(again)) != 0)
        abort();
}

/* The first half says what is asked for, the second is asked. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf again = BUF_INIT(1 << 20);
    if (size >= WIRE_HEADER_SIZE)
        header(data);
    size_t half = size / 2;
    struct wire_reader r = wire_reader_of(str_n(data + half, size - half));
    const uint8_t *end = r.p + r.n;
    for (size_t i = 0; i < half && !r.bad; i++) {
        const uint8_t *from = r.p;
        buf_clear(&again);
        if (data[i] % 6 == 0)
            wire_put_u8(&again, wire_get_u8(&r));
        else if (data[i] % 6 == 1)
            wire_put_u16(&again, wire_get_u16(&r));
        else if (data[i] % 6 == 2)
            wire_put_u32(&again, wire_get_u32(&r));
        else if (data[i] % 6 == 3)
            wire_put_u64(&again, wire_get_u64(&r));
        else if (data[i] % 6 == 4)
            wire_put_str(&again, wire_get_str(&r));
        else if (wire_get_count(&r, data[i]) > (size_t)(end - from))
            abort();
        if (r.p > end || r.n != (size_t)(end - r.p))
            abort();
        if (!r.bad && data[i] % 6 < 5 && !str_eq(buf_str(&again), str_n(from, (size_t)(r.p - from))))
            abort();
    }
    return 0;
}

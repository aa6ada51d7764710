/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client/exec_stream.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_n(data, size);
    struct exec_stream_frame f;
    AUTO_BUF struct buf b = BUF_INIT(EXEC_STREAM_HEAD + EXEC_STREAM_PAYLOAD_MAX);
    size_t before = in.n;
    while (exec_stream_next(&in, &f) > 0) {
        uint16_t columns, rows;
        if (f.payload.n > EXEC_STREAM_PAYLOAD_MAX || before - in.n != EXEC_STREAM_HEAD + f.payload.n)
            abort();
        /* What was read is written back as it was. */
        buf_clear(&b);
        exec_stream_append(&b, f.kind, f.payload);
        if (buf_error(&b) || memcmp(buf_data(&b), f.payload.p - EXEC_STREAM_HEAD, buf_len(&b)) != 0)
            abort();
        if (f.kind == EXEC_STREAM_RESIZE &&
            (exec_stream_parse_resize(f.payload, &columns, &rows) == 0) != (f.payload.n == 4))
            abort();
        before = in.n;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Connect envelopes: the decoder for whole bodies and the incremental one agree, in any pieces. */
#include "base/buf.h"
#include "http/client/connect.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_MESSAGE = 300 };

/* Returns the number of messages, or the error; seen gets them all, framed anew. */
static int run(struct str body, size_t step, struct buf *seen)
{
    struct connect_decoder d;
    int n = 0, r = 0;
    connect_decoder_init(&d, MAX_MESSAGE);
    while (body.n && r >= 0) {
        struct str in = str_n(body.p, MIN(step, body.n)), message;
        body = str_sub(body, in.n);
        while ((r = connect_decoder_next(&d, &in, &message)) == CONNECT_MESSAGE) {
            n++;
            if (message.n > MAX_MESSAGE || connect_append(seen, 0, message) < 0)
                abort();
        }
        if (r >= 0 && in.n)
            abort();
    }
    if (r >= 0)
        r = connect_decoder_end(&d);
    connect_decoder_fini(&d);
    return r < 0 ? r : n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf whole = BUF_INIT(8 << 20), pieces = BUF_INIT(8 << 20);
    if (size < 1)
        return 0;
    struct str body = str_n(data + 1, size - 1), message;
    int a = run(body, body.n + 1, &whole);
    int b = run(body, MAX(data[0], 1), &pieces);
    if (a != b || !str_eq(buf_str(&whole), buf_str(&pieces)) || (a >= 0 && !str_eq(buf_str(&whole), body)))
        abort();
    int one = connect_decode_one(body, MAX_MESSAGE, NULL, &message);
    if ((one == 0) != (a == 1) || (one == 0 && message.n != body.n - CONNECT_HEAD))
        abort();
    uint64_t ms;
    (void)!connect_parse_timeout(body, &ms);
    return 0;
}

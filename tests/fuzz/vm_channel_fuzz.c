/* SPDX-License-Identifier: Apache-2.0 */
/* What a virtual machine sends over its serial port: the same passes, and the same is told, however the bytes are
 * cut. */
#include "tier/vm/channel.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
    uint64_t sum;
};

static void fuzz_woken(void *ctx, uint8_t what, uint64_t nonce)
{
    struct told *t = ctx;
    t->sum = t->sum * 31 + what + nonce;
}

static void fuzz_greeted(void *ctx)
{
    struct told *t = ctx;
    t->sum = t->sum * 31 + 7;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct told one = {0}, other = {0};
    struct vm_channel whole = {
        .drops = size % 2, .awaits = 1, .woken = fuzz_woken, .greeted = fuzz_greeted, .ctx = &one};
    struct vm_channel cut = whole;
    AUTO_BUF struct buf out = BUF_INIT(1 << 20), pieces = BUF_INIT(1 << 20), in = BUF_INIT(1 << 20);
    struct str bytes = str_n((const char *)data, size);
    int r = channel_feed(&whole, bytes, &out), r2 = 0;

    cut.ctx = &other;
    for (size_t n = 1; bytes.n && r2 == 0; n = n * 3 % 7) {
        struct str piece = str_n(bytes.p, MIN(n, bytes.n));
        bytes = str_sub(bytes, piece.n);
        r2 = channel_feed(&cut, piece, &pieces);
    }
    if (r != r2 || (r == 0 && (one.sum != other.sum || !str_eq(buf_str(&out), buf_str(&pieces)))))
        abort();
    (void)buf_append(&in, data, size);
    ssize_t n = channel_whole(&in, 1000);
    if (n > (ssize_t)size)
        abort();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* First bytes of connections: nothing behind them is read, and it does not matter in what pieces they came. */
#include "base/mem.h"
#include "egress/tls/hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct hello *a, const struct hello *b)
{
    return a->result == b->result && a->reason == b->reason && a->size == b->size &&
           (a->result != HELLO_COMPLETE || (str_eq(hello_name(a), hello_name(b)) && a->alpn_len == b->alpn_len &&
                                            memcmp(a->alpn, b->alpn, a->alpn_len) == 0 && a->best == b->best));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hello whole, pieces;
    hello_init(&whole);
    hello_init(&pieces);
    (void)hello_feed(&whole, str_n(data, size));
    if (whole.result == HELLO_COMPLETE && (whole.size > size || whole.name_len > HELLO_NAME_MAX || whole.best < 0x0301))
        abort();
    struct str protocol;
    for (size_t it = 0; whole.result == HELLO_COMPLETE && hello_alpn_next(&whole, &it, &protocol);)
        if (protocol.n == 0 || it > whole.alpn_len || !hello_alpn_has(&whole, protocol))
            abort();
    for (size_t n = 1, step = size / 64 + 1; n < size; n += step) {
        AUTO_FREE uint8_t *exact = mem_dup(data, n); /* what is behind it must not be touched */
        (void)hello_feed(&pieces, str_n(exact, n));
    }
    (void)hello_feed(&pieces, str_n(data, size));
    if (!same(&whole, &pieces))
        abort();
    return 0;
}

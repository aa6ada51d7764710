/* SPDX-License-Identifier: Apache-2.0 */
/* What lies below a layer, as the pool's file says it: what is accepted holds names of layers only, each once, and is
 * written as it was. */
#include "base/buf.h"
#include "base/mem.h"
#include "kernel/pool/pool_internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pool_chain chain;
    if (size == 0 || size > 1 << 14)
        return 0;
    size_t most = data[0] % (POOL_CHAIN_MAX + 1);
    AUTO_FREE char *copy = mem_dup(data + 1, size - 1);
    struct str text = str_n(copy, size - 1);
    if (pool_below_parse(text, most, &chain) < 0)
        return 0;
    AUTO_BUF struct buf again = BUF_INIT(POOL_BELOW_MAX);
    for (size_t i = 0; i < chain.n; i++) {
        if (!pool_is_layer(chain.names[i]))
            abort();
        (void)buf_printf(&again, "%s\n", chain.names[i]);
    }
    if (chain.n > most || buf_error(&again) || !str_eq(buf_str(&again), text))
        abort();
    return 0;
}

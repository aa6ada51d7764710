/* SPDX-License-Identifier: Apache-2.0 */
/* A store and PEM text, divided by the first byte: what comes out is a store again, and adding the same again changes
 * nothing. */
#include "agent/jks.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf once = BUF_INIT(1 << 20);
    AUTO_BUF struct buf twice = BUF_INIT(1 << 20);
    if (size < 1)
        return 0;
    size_t cut = MIN((size_t)data[0], size - 1);
    struct str old = str_n(data + 1, cut), pem = str_n(data + 1 + cut, size - 1 - cut);
    size_t known = jks_begin(&once, old);
    jks_add_pem(&once, known, pem, "fuzz");
    if (jks_end(&once) < 0)
        return 0;
    if (!jks_is(buf_str(&once)))
        abort();
    known = jks_begin(&twice, buf_str(&once));
    jks_add_pem(&twice, known, pem, "fuzz");
    if (jks_end(&twice) == 0 && !str_eq(buf_str(&once), buf_str(&twice)))
        abort();
    return 0;
}

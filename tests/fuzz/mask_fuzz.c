/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials in command lines: whatever they are, what is masked is at most three bytes longer for each two of the
 * text, and ends. */
#include "policy/mask.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct str text = str_n((const char *)data, size);
    AUTO_BUF struct buf b = BUF_INIT(1 << 22);
    mask_secrets(text, &b);
    if (buf_error(&b) || buf_len(&b) > 3 * size + 3)
        abort();
    (void)mask_wants_next(text);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's CA as it is kept by others. What is taken is of one piece: it signs, and is exported as it came. */
#include "egress/tls/ca.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err;
    struct ca *ca;
    const struct ca_leaf *leaf;
    AUTO_BUF struct buf bytes = BUF_INIT(CA_EXPORT_MAX), pem = BUF_INIT(2 * CA_EXPORT_MAX);
    if (ca_import(str_n(data, size), &ca, &err) < 0) {
        if (err.code != ERR_INVALID_ARGUMENT && err.code != ERR_FAILED_PRECONDITION)
            abort();
        return 0;
    }
    if (ca_leaf(ca, "a.example", &leaf, &err) < 0 || ca_export(ca, &bytes, &err) < 0 || ca_pem(ca, &pem, &err) < 0)
        abort();
    AUTO_BUF struct buf again = BUF_INIT(CA_EXPORT_MAX);
    struct ca *copy;
    if (ca_import(buf_str(&bytes), &copy, &err) < 0 || ca_export(copy, &again, &err) < 0 ||
        !str_eq(buf_str(&bytes), buf_str(&again)))
        abort();
    ca_free(copy);
    ca_free(ca);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the vault and its answers: what is taken is within its bounds, and written again it is the same bytes. */
#include "wire/vault.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void request(struct str message)
{
    struct vault_request r;
    AUTO_BUF struct buf again = BUF_INIT(VAULT_REQUEST_MAX);
    if (vault_request_parse(message, &r) < 0)
        return;
    if (r.name.n > VAULT_NAME_MAX || r.value.n > VAULT_VALUE_MAX)
        abort();
    vault_request_append(&again, &r);
    if (!str_eq(buf_str(&again), message))
        abort();
}

static void answer(struct str message)
{
    struct vault_answer a;
    struct str name;
    uint64_t at;
    uint32_t n = 0;
    AUTO_BUF struct buf again = BUF_INIT(VAULT_ANSWER_MAX);
    if (vault_answer_parse(message, &a) < 0 || a.code != ERR_OK)
        return;
    uint32_t count = a.count;
    size_t begun = vault_answer_begin(&again);
    for (; vault_answer_next(&a, &name, &at); n++)
        vault_answer_append_name(&again, name, at);
    vault_answer_end(&again, begun, n);
    if (n != count || !str_eq(buf_str(&again), message))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str message = str_n(data, size);
    ssize_t whole = vault_message_size(message, VAULT_REQUEST_MAX);
    if (whole > VAULT_REQUEST_MAX || (whole > 0 && whole <= VAULT_HEAD))
        abort();
    request(message);
    answer(message);
    return 0;
}

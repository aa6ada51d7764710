/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/vault.h"

ssize_t vault_message_size(struct str bytes, size_t most)
{
    struct wire_reader r = wire_reader_of(bytes);
    uint32_t size = wire_get_u32(&r);
    if (r.bad)
        return 0;
    if (size == 0 || size > most - VAULT_HEAD)
        return -EMSGSIZE;
    return (ssize_t)size + VAULT_HEAD;
}

void vault_request_append(struct buf *to, const struct vault_request *request)
{
    assert(request->name.n <= VAULT_NAME_MAX && request->value.n <= VAULT_VALUE_MAX);
    bool has_value = request->op == VAULT_SET;
    size_t n = 2 + 4 + request->name.n + (has_value ? 4 + request->value.n : 0);
    if (!buf_reserve(to, VAULT_HEAD + n))
        return;
    wire_put_u32(to, (uint32_t)n);
    wire_put_u8(to, VAULT_VERSION);
    wire_put_u8(to, (uint8_t)request->op);
    wire_put_str(to, request->name);
    if (has_value)
        wire_put_str(to, request->value);
}

/* Positions the reader behind the version, which is checked, as is the size. */
static struct wire_reader open_message(struct str message, size_t most)
{
    ssize_t size = vault_message_size(message, most);
    struct wire_reader r = wire_reader_of(str_sub(message, VAULT_HEAD));
    if (size <= 0 || (size_t)size != message.n || wire_get_u8(&r) != VAULT_VERSION)
        r.bad = true;
    return r;
}

int vault_request_parse(struct str message, struct vault_request *ret_request)
{
    struct wire_reader r = open_message(message, VAULT_REQUEST_MAX);
    uint8_t op = wire_get_u8(&r);
    struct vault_request request = {.op = (enum vault_op)op, .name = wire_get_str(&r)};
    if (op == VAULT_SET)
        request.value = wire_get_str(&r);
    bool is_known = op == VAULT_SET || op == VAULT_REMOVE || op == VAULT_LIST;
    if (!wire_done(&r) || !is_known || (op == VAULT_LIST) != (request.name.n == 0) || request.name.n > VAULT_NAME_MAX ||
        request.value.n > VAULT_VALUE_MAX)
        return -EPROTO;
    *ret_request = request;
    return 0;
}

static size_t vault_begin(struct buf *to, enum err_code code)
{
    size_t at = buf_len(to);
    wire_put_u32(to, 0);
    wire_put_u8(to, VAULT_VERSION);
    wire_put_u8(to, (uint8_t)code);
    return at;
}

static void put_u32_at(struct buf *to, size_t at, size_t value)
{
    for (size_t i = 0; i < 4 && !buf_error(to); i++)
        buf_data(to)[at + i] = (char)(value >> (8 * i) & 0xff);
}

void vault_answer_append_error(struct buf *to, const struct err *err)
{
    size_t at = vault_begin(to, err->code == ERR_OK ? ERR_UNKNOWN : err->code);
    wire_put_str(to, str_of(err->msg));
    put_u32_at(to, at, buf_len(to) - at - VAULT_HEAD);
}

size_t vault_answer_begin(struct buf *to)
{
    size_t at = vault_begin(to, ERR_OK);
    wire_put_u32(to, 0);
    return at;
}

void vault_answer_append_name(struct buf *to, struct str name, uint64_t set_at_us)
{
    wire_put_str(to, name);
    wire_put_u64(to, set_at_us);
}

void vault_answer_end(struct buf *to, size_t at, uint32_t count)
{
    put_u32_at(to, at, buf_len(to) - at - VAULT_HEAD);
    put_u32_at(to, at + VAULT_HEAD + 2, count);
}

int vault_answer_parse(struct str message, struct vault_answer *ret_answer)
{
    struct wire_reader r = open_message(message, VAULT_ANSWER_MAX);
    uint8_t code = wire_get_u8(&r);
    struct vault_answer answer = {.code = (enum err_code)code};
    if (r.bad || code >= ERR_CODE_MAX)
        return -EPROTO;
    if (code != ERR_OK) {
        answer.message = wire_get_str(&r);
        if (!wire_done(&r))
            return -EPROTO;
    } else {
        answer.count = wire_get_count(&r, 4 + 1 + 8);
        answer.names = r;
        struct vault_answer all = answer;
        struct str name;
        uint64_t at;
        while (vault_answer_next(&all, &name, &at))
            if (name.n > VAULT_NAME_MAX)
                return -EPROTO;
        if (all.count > 0 || !wire_done(&all.names))
            return -EPROTO;
    }
    *ret_answer = answer;
    return 0;
}

bool vault_answer_next(struct vault_answer *answer, struct str *ret_name, uint64_t *ret_set_at_us)
{
    if (answer->count == 0 || answer->names.bad)
        return false;
    struct str name = wire_get_str(&answer->names);
    uint64_t at = wire_get_u64(&answer->names);
    if (answer->names.bad)
        return false;
    answer->count--;
    *ret_name = name;
    *ret_set_at_us = at;
    return true;
}

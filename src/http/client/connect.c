/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client/connect.h"

void connect_head(uint8_t ret_head[static CONNECT_HEAD], uint8_t flags, size_t n)
{
    assert(n <= UINT32_MAX);
    ret_head[0] = flags;
    ret_head[1] = (uint8_t)(n >> 24);
    ret_head[2] = (uint8_t)(n >> 16);
    ret_head[3] = (uint8_t)(n >> 8);
    ret_head[4] = (uint8_t)n;
}

static size_t head_length(const uint8_t *head)
{
    return (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
}

int connect_append(struct buf *b, uint8_t flags, struct str message)
{
    uint8_t head[CONNECT_HEAD];
    connect_head(head, flags, message.n);
    buf_append(b, head, sizeof(head));
    return buf_append_str(b, message);
}

int connect_append_error(struct buf *b, enum err_code code, struct str message)
{
    buf_append_cstr(b, "{\"code\":\"");
    buf_append_cstr(b, err_code_name(code));
    buf_append_cstr(b, "\",\"message\":");
    buf_append_json_string(b, message);
    return buf_append_char(b, '}');
}

int connect_append_end(struct buf *b, enum err_code code, struct str message)
{
    if (code == ERR_OK)
        return connect_append(b, CONNECT_FLAG_END, STR("{}"));
    AUTO_BUF struct buf json = BUF_INIT(b->max);
    buf_append_cstr(&json, "{\"error\":");
    connect_append_error(&json, code, message);
    buf_append_char(&json, '}');
    if (buf_error(&json))
        return b->error = b->error ? b->error : buf_error(&json);
    return connect_append(b, CONNECT_FLAG_END, buf_str(&json));
}

int connect_status(enum err_code code)
{
    static const short statuses[ERR_CODE_MAX] = {
        [ERR_OK] = 200,
        [ERR_CANCELED] = 499,
        [ERR_UNKNOWN] = 500,
        [ERR_INVALID_ARGUMENT] = 400,
        [ERR_DEADLINE_EXCEEDED] = 504,
        [ERR_NOT_FOUND] = 404,
        [ERR_ALREADY_EXISTS] = 409,
        [ERR_PERMISSION_DENIED] = 403,
        [ERR_RESOURCE_EXHAUSTED] = 429,
        [ERR_FAILED_PRECONDITION] = 400,
        [ERR_ABORTED] = 409,
        [ERR_OUT_OF_RANGE] = 400,
        [ERR_UNIMPLEMENTED] = 501,
        [ERR_INTERNAL] = 500,
        [ERR_UNAVAILABLE] = 503,
        [ERR_DATA_LOSS] = 500,
        [ERR_UNAUTHENTICATED] = 401,
    };
    return (unsigned)code < ERR_CODE_MAX ? statuses[code] : 500;
}

static int check_head(const uint8_t *head, size_t max, bool may_compress)
{
    if (head[0] == CONNECT_FLAG_COMPRESSED && !may_compress)
        return -ENOTSUP;
    if (head[0] & ~CONNECT_FLAG_COMPRESSED)
        return -EPROTO;
    return head_length(head) > max ? -EMSGSIZE : 0;
}

int connect_decode_one(struct str body, size_t max, bool *ret_compressed, struct str *ret_message)
{
    if (body.n < CONNECT_HEAD)
        return -EPROTO;
    const uint8_t *head = (const uint8_t *)body.p;
    int r = check_head(head, max, ret_compressed);
    if (r < 0)
        return r;
    if (head_length(head) != body.n - CONNECT_HEAD)
        return -EPROTO;
    if (ret_compressed)
        *ret_compressed = head[0];
    *ret_message = str_sub(body, CONNECT_HEAD);
    return 0;
}

void connect_decoder_init(struct connect_decoder *d, size_t max)
{
    *d = (struct connect_decoder){.message = BUF_INIT(max)};
}

void connect_decoder_fini(struct connect_decoder *d)
{
    buf_fini(&d->message);
}

int connect_decoder_next(struct connect_decoder *d, struct str *in, struct str *ret_message)
{
    if (d->error)
        return d->error;
    if (d->handed_out) {
        buf_clear(&d->message);
        d->handed_out = false;
        d->head_len = 0;
    }
    while (d->head_len < CONNECT_HEAD) {
        if (in->n == 0)
            return CONNECT_NEED_MORE;
        d->head[d->head_len++] = (uint8_t)in->p[0];
        *in = str_sub(*in, 1);
        if (d->head_len == CONNECT_HEAD) {
            d->error = check_head(d->head, d->message.max, d->may_compress);
            d->want = head_length(d->head);
        }
        if (d->error)
            return d->error;
    }
    size_t take = MIN(d->want, in->n);
    struct str part = str_n(in->p, take);
    bool all = take == d->want;
    if (!all || buf_len(&d->message)) {
        d->error = buf_append_str(&d->message, part);
        if (d->error)
            return d->error;
        part = buf_str(&d->message);
    }
    *in = str_sub(*in, take);
    d->want -= take;
    if (!all)
        return CONNECT_NEED_MORE;
    d->handed_out = true;
    *ret_message = part;
    return CONNECT_MESSAGE;
}

bool connect_decoder_is_compressed(const struct connect_decoder *d)
{
    return d->handed_out && d->head[0];
}

int connect_decoder_end(const struct connect_decoder *d)
{
    return d->error ? d->error : d->handed_out || d->head_len == 0 ? 0 : -EPROTO;
}

int connect_parse_timeout(struct str value, uint64_t *ret_ms)
{
    if (!value.p)
        return 0;
    uint64_t ms;
    if (value.n > 10 || str_to_u64(value, &ms) < 0)
        return -EINVAL;
    *ret_ms = ms;
    return 1;
}

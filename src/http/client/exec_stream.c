/* SPDX-License-Identifier: Apache-2.0 */
#include "http/client/exec_stream.h"

/* The longest payload of each kind; a kind that is not here does not exist. */
static const struct {
    bool known;
    uint32_t max;
} kinds[] = {
    [EXEC_STREAM_STARTED] = {true, 4096},
    [EXEC_STREAM_STDOUT] = {true, EXEC_STREAM_PAYLOAD_MAX},
    [EXEC_STREAM_STDERR] = {true, EXEC_STREAM_PAYLOAD_MAX},
    [EXEC_STREAM_PTY] = {true, EXEC_STREAM_PAYLOAD_MAX},
    [EXEC_STREAM_EXIT] = {true, 4096},
    [EXEC_STREAM_ERROR] = {true, 4096},
    [EXEC_STREAM_STDIN] = {true, EXEC_STREAM_PAYLOAD_MAX},
    [EXEC_STREAM_STDIN_EOF] = {true, 0},
    [EXEC_STREAM_RESIZE] = {true, 4},
    [EXEC_STREAM_SIGNAL] = {true, 1},
};

void exec_stream_head(uint8_t ret_head[static EXEC_STREAM_HEAD], enum exec_stream_kind kind, size_t n)
{
    assert(kind < ARRAY_SIZE(kinds) && n <= kinds[kind].max);
    ret_head[0] = (uint8_t)kind;
    for (unsigned i = 0; i < 4; i++)
        ret_head[1 + i] = (uint8_t)(n >> (8 * i));
}

void exec_stream_append(struct buf *b, enum exec_stream_kind kind, struct str payload)
{
    uint8_t head[EXEC_STREAM_HEAD];
    exec_stream_head(head, kind, payload.n);
    buf_append(b, head, sizeof(head));
    buf_append_str(b, payload);
}

int exec_stream_next(struct str *in, struct exec_stream_frame *ret_frame)
{
    if (in->n == 0)
        return 0;
    const uint8_t *p = (const uint8_t *)in->p;
    if (p[0] >= ARRAY_SIZE(kinds) || !kinds[p[0]].known)
        return -EPROTO;
    if (in->n < EXEC_STREAM_HEAD)
        return 0;
    uint32_t n = 0;
    for (unsigned i = 0; i < 4; i++)
        n |= (uint32_t)p[1 + i] << (8 * i);
    if (n > kinds[p[0]].max)
        return -EPROTO;
    if (in->n - EXEC_STREAM_HEAD < n)
        return 0;
    ret_frame->kind = p[0];
    ret_frame->payload = str_n(in->p + EXEC_STREAM_HEAD, n);
    *in = str_sub(*in, EXEC_STREAM_HEAD + n);
    return 1;
}

void exec_stream_append_resize(struct buf *b, uint16_t columns, uint16_t rows)
{
    uint8_t bytes[4] = {(uint8_t)columns, (uint8_t)(columns >> 8), (uint8_t)rows, (uint8_t)(rows >> 8)};
    exec_stream_append(b, EXEC_STREAM_RESIZE, str_n(bytes, sizeof(bytes)));
}

int exec_stream_parse_resize(struct str payload, uint16_t *ret_columns, uint16_t *ret_rows)
{
    if (payload.n != 4)
        return -EPROTO;
    const uint8_t *p = (const uint8_t *)payload.p;
    *ret_columns = (uint16_t)(p[0] | p[1] << 8);
    *ret_rows = (uint16_t)(p[2] | p[3] << 8);
    return 0;
}

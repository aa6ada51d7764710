/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frame.h"

static void put_le(uint8_t *to, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *from, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)from[i] << (8 * i);
    return v;
}

void wire_header_put(const struct wire_frame *f, uint8_t ret_bytes[static WIRE_HEADER_SIZE])
{
    put_le(ret_bytes, f->size, 4);
    put_le(ret_bytes + 4, f->stream, 4);
    ret_bytes[8] = f->type;
    ret_bytes[9] = f->flags;
    ret_bytes[10] = ret_bytes[11] = 0;
}

int wire_header_get(const uint8_t bytes[static WIRE_HEADER_SIZE], struct wire_frame *ret_f)
{
    struct wire_frame f = {
        .size = (uint32_t)get_le(bytes, 4),
        .stream = (uint32_t)get_le(bytes + 4, 4),
        .type = bytes[8],
        .flags = bytes[9],
    };
    if (f.size > WIRE_PAYLOAD_MAX || f.type < WIRE_HELLO || f.type > WIRE_WAKE || bytes[10] || bytes[11])
        return -EPROTO;
    *ret_f = f;
    return 0;
}

static void frame_put(struct buf *b, uint64_t v, size_t n)
{
    uint8_t bytes[8];
    put_le(bytes, v, n);
    (void)buf_append(b, bytes, n);
}

void wire_put_u8(struct buf *b, uint8_t v)
{
    frame_put(b, v, 1);
}

void wire_put_u16(struct buf *b, uint16_t v)
{
    frame_put(b, v, 2);
}

void wire_put_u32(struct buf *b, uint32_t v)
{
    frame_put(b, v, 4);
}

void wire_put_u64(struct buf *b, uint64_t v)
{
    frame_put(b, v, 8);
}

void wire_put_str(struct buf *b, struct str s)
{
    assert(s.n <= UINT32_MAX);
    wire_put_u32(b, (uint32_t)s.n);
    (void)buf_append_str(b, s);
}

size_t wire_begin(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream)
{
    uint8_t header[WIRE_HEADER_SIZE];
    wire_header_put(&(struct wire_frame){.type = type, .flags = flags, .stream = stream}, header);
    size_t at = buf_len(b);
    (void)buf_append(b, header, sizeof(header));
    return at;
}

void wire_end(struct buf *b, size_t at)
{
    if (buf_error(b))
        return;
    size_t size = buf_len(b) - at - WIRE_HEADER_SIZE;
    assert(size <= WIRE_PAYLOAD_MAX);
    put_le((uint8_t *)buf_data(b) + at, size, 4);
}

struct wire_reader wire_reader_of(struct str payload)
{
    return (struct wire_reader){(const uint8_t *)payload.p, payload.n, false};
}

static const uint8_t *frame_take(struct wire_reader *r, size_t n)
{
    if (r->bad || r->n < n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->p;
    r->p += n;
    r->n -= n;
    return p;
}

static uint64_t frame_get(struct wire_reader *r, size_t n)
{
    const uint8_t *p = frame_take(r, n);
    return p ? get_le(p, n) : 0;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
    return (uint8_t)frame_get(r, 1);
}

uint16_t wire_get_u16(struct wire_reader *r)
{
    return (uint16_t)frame_get(r, 2);
}

uint32_t wire_get_u32(struct wire_reader *r)
{
    return (uint32_t)frame_get(r, 4);
}

uint64_t wire_get_u64(struct wire_reader *r)
{
    return frame_get(r, 8);
}

struct str wire_get_str(struct wire_reader *r)
{
    uint32_t n = wire_get_u32(r);
    const uint8_t *p = r->bad ? NULL : frame_take(r, n);
    return p ? str_n(p, n) : STR_NULL;
}

uint32_t wire_get_count(struct wire_reader *r, size_t least_item_bytes)
{
    uint32_t n = wire_get_u32(r);
    if (r->bad || n > r->n / MAX(least_item_bytes, (size_t)1)) {
        r->bad = true;
        return 0;
    }
    return n;
}

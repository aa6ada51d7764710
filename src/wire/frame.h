/* SPDX-License-Identifier: Apache-2.0 */
/* Frame headers and payload values of the agent protocol (wire/proto.h). Used by both ends. */
#pragma once

#include "base/buf.h"
#include "wire/proto.h"

struct wire_frame {
    uint32_t size;
    uint32_t stream;
    uint8_t type;
    uint8_t flags;
};

/* Encodes into exactly WIRE_HEADER_SIZE bytes. */
void wire_header_put(const struct wire_frame *f, uint8_t ret_bytes[static WIRE_HEADER_SIZE]);

/* Decodes and checks: known type, size within WIRE_PAYLOAD_MAX, reserved bytes zero. -EPROTO else. */
int wire_header_get(const uint8_t bytes[static WIRE_HEADER_SIZE], struct wire_frame *ret_f) WARN_UNUSED;

/* Writers append to a buf, whose error is sticky (base/buf.h). */
void wire_put_u8(struct buf *b, uint8_t v);
void wire_put_u16(struct buf *b, uint16_t v);
void wire_put_u32(struct buf *b, uint32_t v);
void wire_put_u64(struct buf *b, uint64_t v);
void wire_put_str(struct buf *b, struct str s);

/*
 * A whole frame is written as begin, values, end: begin appends a header with size 0 and remembers where, end fills the
 * size in.
 *   size_t at = wire_begin(&out, WIRE_OPEN, 0, stream); wire_put_u8(&out, WIRE_STAT); ...; wire_end(&out, at);
 */
size_t wire_begin(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream);
void wire_end(struct buf *b, size_t at);

/* A reader over one payload. After the first value that is not there, `bad` stays set and every get returns 0 or an
 * empty str. */
struct wire_reader {
    const uint8_t *p;
    size_t n;
    bool bad;
};

struct wire_reader wire_reader_of(struct str payload);
uint8_t wire_get_u8(struct wire_reader *r);
uint16_t wire_get_u16(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
struct str wire_get_str(struct wire_reader *r); /* borrowed from the payload */

/* A list's count, refused (bad, 0) when fewer than count * least_item_bytes bytes are left: a count is never trusted
 * for allocation. */
uint32_t wire_get_count(struct wire_reader *r, size_t least_item_bytes);

static inline bool wire_done(const struct wire_reader *r)
{
    return !r->bad && r->n == 0;
}

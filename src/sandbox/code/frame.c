/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/code/frame.h"
#include "wire/frame.h"

enum { HEAD = 5, TYPE_MAX = 128 };

/* Visible, without " and \. */
static bool code_type_is(struct str type)
{
    return type.n > 0 && type.n <= TYPE_MAX && str_is_of(type, "!#-[]-~");
}

/* One frame behind its head. -EPROTO: it is none. */
static int code_frame_parse(uint8_t kind, struct str payload, struct code_frame *ret_frame)
{
    struct wire_reader r = wire_reader_of(payload);
    struct code_frame *f = ret_frame;
    f->kind = kind;
    f->n_data = 0;
    switch (f->kind) {
    case CODE_FRAME_READY:
        break;
    case CODE_FRAME_STDOUT:
    case CODE_FRAME_STDERR:
        f->text = wire_get_str(&r);
        break;
    case CODE_FRAME_RESULT:
        f->is_main = wire_get_u8(&r) != 0;
        for (uint32_t n = wire_get_count(&r, 8); n && !r.bad; n--) {
            struct code_datum one = {.type = wire_get_str(&r), .data = wire_get_str(&r)};
            if (f->n_data == CODE_DATA_MAX || !code_type_is(one.type))
                return -EPROTO;
            f->data[f->n_data++] = one;
        }
        break;
    case CODE_FRAME_ERROR:
        f->name = wire_get_str(&r);
        f->value = wire_get_str(&r);
        f->trace = wire_get_str(&r);
        break;
    case CODE_FRAME_COUNT:
        f->count = wire_get_u32(&r);
        break;
    case CODE_FRAME_END:
        f->cell = wire_get_u64(&r);
        break;
    default:
        return -EPROTO;
    }
    return wire_done(&r) ? 0 : -EPROTO;
}

/* The frame that the bytes begin with: how long it is with its head, 0 when there is more to come, -EPROTO. */
static ssize_t code_frame_next(struct str bytes, struct code_frame *ret_frame)
{
    struct wire_reader r = wire_reader_of(bytes);
    uint32_t size = wire_get_u32(&r);
    uint8_t kind = wire_get_u8(&r);
    if (r.bad)
        return 0;
    if (size > CODE_FRAME_MAX)
        return -EPROTO;
    if (r.n < size)
        return 0;
    if (code_frame_parse(kind, str_n((const char *)r.p, size), ret_frame) < 0)
        return -EPROTO;
    return HEAD + (ssize_t)size;
}

int code_frames_feed(struct buf *rest, struct str bytes, bool (*fn)(void *ctx, const struct code_frame *f), void *ctx)
{
    struct code_frame f;
    bool is_kept = buf_len(rest) > 0;
    while (bytes.n) {
        /* What began before is completed first, and no more than that is copied. */
        if (is_kept) {
            struct wire_reader r = wire_reader_of(buf_str(rest));
            size_t want = HEAD + wire_get_u32(&r);
            size_t n = MIN(bytes.n, r.bad || buf_len(rest) < HEAD ? HEAD - buf_len(rest) : want - buf_len(rest));
            if (buf_append_str(rest, str_n(bytes.p, n)) < 0)
                return buf_error(rest) == -ENOMEM ? -ENOMEM : -EPROTO;
            bytes = str_sub(bytes, n);
        }
        ssize_t n = code_frame_next(is_kept ? buf_str(rest) : bytes, &f);
        if (n < 0)
            return -EPROTO;
        if (n == 0 && is_kept)
            continue;
        if (n == 0)
            return buf_append_str(rest, bytes) < 0 ? -ENOMEM : 0;
        if (!is_kept)
            bytes = str_sub(bytes, (size_t)n);
        bool goes_on = fn(ctx, &f);
        if (is_kept)
            buf_fini(rest);
        is_kept = false;
        if (!goes_on)
            return 0;
    }
    return 0;
}

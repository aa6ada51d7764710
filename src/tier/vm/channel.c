/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/channel.h"

ssize_t channel_whole(const struct buf *in, size_t most)
{
    size_t n = 0;
    struct wire_frame f;
    while (buf_len(in) - n >= WIRE_HEADER_SIZE) {
        if (wire_header_get((const uint8_t *)buf_data(in) + n, &f) < 0 || f.type == WIRE_WAKE)
            return -EPROTO;
        size_t frame = WIRE_HEADER_SIZE + (size_t)f.size;
        if (buf_len(in) - n < frame || (n && n + frame > most))
            break;
        n += frame;
    }
    return (ssize_t)n;
}

/* Its header is whole. */
static int channel_begin(struct vm_channel *c, struct buf *out)
{
    struct wire_frame f;
    if (wire_header_get(c->head, &f) < 0)
        return -EPROTO;
    if (f.type == WIRE_WAKE)
        return f.stream == 0 && f.size == 9 ? 0 : -EPROTO; /* told when its payload is there as well */
    c->n_head = 0;
    c->left = f.size;
    if (!c->drops)
        (void)buf_append(out, c->head, WIRE_HEADER_SIZE);
    if (f.type == WIRE_HELLO && c->greeted)
        c->greeted(c->ctx);
    return 0;
}

static void channel_wake(struct vm_channel *c)
{
    struct wire_reader r = {c->head + WIRE_HEADER_SIZE, 9, false};
    uint8_t what = wire_get_u8(&r);
    uint64_t nonce = wire_get_u64(&r);
    c->n_head = 0;
    if (c->drops && what == WIRE_WAKE_SESSION && nonce == c->awaits)
        c->drops = false;
    if (c->woken)
        c->woken(c->ctx, what, nonce);
}

int channel_feed(struct vm_channel *c, struct str in, struct buf *out)
{
    while (in.n) {
        if (c->left) {
            size_t n = MIN(in.n, (size_t)c->left);
            if (!c->drops && buf_append(out, in.p, n) < 0)
                return -ENOBUFS;
            c->left -= (uint32_t)n;
            in = str_sub(in, n);
            continue;
        }
        const size_t wants = c->n_head < WIRE_HEADER_SIZE ? WIRE_HEADER_SIZE : WIRE_HEADER_SIZE + 9;
        size_t n = MIN(in.n, wants - c->n_head);
        memcpy(c->head + c->n_head, in.p, n);
        c->n_head += n;
        in = str_sub(in, n);
        if (c->n_head == WIRE_HEADER_SIZE) {
            int r = channel_begin(c, out);
            if (r < 0)
                return r;
        } else if (c->n_head == WIRE_HEADER_SIZE + 9) {
            channel_wake(c);
        }
    }
    return buf_error(out);
}

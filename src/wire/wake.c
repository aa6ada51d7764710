/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wake.h"
#include "wire/frame.h"

#include <sys/random.h>

int wake_put(struct buf *b, const struct wake *w)
{
    char entropy[WAKE_ENTROPY];
    if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy))
        return -EIO;
    size_t at = wire_begin(b, WIRE_WAKE, 0, 0);
    wire_put_u8(b, w->what);
    wire_put_u64(b, w->nonce);
    wire_put_u64(b, clock_real());
    wire_put_str(b, str_n(entropy, sizeof(entropy)));
    wire_put_str(b, w->name);
    wire_put_str(b, w->id);
    wire_put_str(b, w->template_id);
    wire_put_u32(b, w->pids);
    wire_end(b, at);
    explicit_bzero(entropy, sizeof(entropy));
    return buf_error(b);
}

bool wake_read(struct str payload, struct wake *ret_wake)
{
    struct wire_reader r = wire_reader_of(payload);
    struct wake w;
    w.what = wire_get_u8(&r);
    w.nonce = wire_get_u64(&r);
    w.now = wire_get_u64(&r);
    w.entropy = wire_get_str(&r);
    w.name = wire_get_str(&r);
    w.id = wire_get_str(&r);
    w.template_id = wire_get_str(&r);
    w.pids = wire_get_u32(&r);
    if (!wire_done(&r) || w.entropy.n > WAKE_ENTROPY || w.name.n > WAKE_NAME_MAX)
        return false;
    *ret_wake = w;
    return true;
}

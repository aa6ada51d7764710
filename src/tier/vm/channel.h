/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire (wire/proto.h) as a monitor of a virtual machine passes it on: it looks at nothing but where frames begin
 * and end, so that one of its own fits between two. What comes from a machine is hostile: a header that is none ends
 * it.
 */
#pragma once

#include "base/buf.h"
#include "wire/frame.h"

enum { CHANNEL_MAX = WIRE_HEADER_SIZE + WIRE_PAYLOAD_MAX, CHANNEL_ROOM = CHANNEL_MAX + 64 * 1024 };

/*
 * The whole frames at the front of `in`: how many bytes they have, at most `most` (and one frame at least, if it is
 * whole). -EPROTO. To the machine.
 */
ssize_t channel_whole(const struct buf *in, size_t most) WARN_UNUSED;

/* From the machine: bytes pass as they come, but for WIRE_WAKE, of which each is told as a whole. */
struct vm_channel {
    uint8_t head[WIRE_HEADER_SIZE + 16]; /* of a frame, and the payload of a WIRE_WAKE */
    size_t n_head;
    uint32_t left;   /* of the payload of the frame that passes */
    bool drops;      /* what was meant for a session that is over */
    uint64_t awaits; /* drops: until this nonce is answered */
    /* Told of whole ones. */
    void (*woken)(void *ctx, uint8_t what, uint64_t nonce);
    void (*greeted)(void *ctx); /* WIRE_HELLO: an agent is there. It passes, too */
    void *ctx;
};

/* Consumes all of `in`, appends what passes to `out`. -EPROTO: it is no wire; -ENOBUFS. */
int channel_feed(struct vm_channel *c, struct str in, struct buf *out) WARN_UNUSED;

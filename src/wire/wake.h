/* SPDX-License-Identifier: Apache-2.0 */
/* WIRE_WAKE as a frame: what is told to an agent that the host has started again, or goes on in a copy. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"

enum { WAKE_ENTROPY = 64, WAKE_NAME_MAX = 64 };

struct wake {
    uint8_t what; /* enum wire_wake */
    uint64_t nonce;
    usec_t now; /* real time */
    struct str entropy, name, id, template_id;
    uint32_t pids;
};

/* With the time, and random numbers of its own. -errno. */
int wake_put(struct buf *b, const struct wake *w) WARN_UNUSED;
/* Borrowed from the payload. False: malformed. */
bool wake_read(struct str payload, struct wake *ret_wake) WARN_UNUSED;

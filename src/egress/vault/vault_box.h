/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that only the holder of a key can open, and memory for what must not leave the process.
 *
 *   box   u8 1 | salt, 16 random bytes | nonce, 12 random bytes | ciphertext | tag, 16 bytes        AES-256-GCM
 *   key   HMAC-SHA256(master key, "cove box 1" | salt), so that the number of boxes under one master key needs no limit
 *   label what the box is for: associated data, not in the box. Whoever opens it must know it.
 */
#pragma once

#include "base/buf.h"

enum { BOX_KEY_BYTES = 32, BOX_OVERHEAD = 1 + 16 + 12 + 16 };

struct box_label {
    const char *kind; /* a literal: two uses with the same kind can't be told apart */
    uint64_t number;
    struct str name;
};

/* Appends the box. -ENOBUFS, -ENOMEM. */
int box_seal(const uint8_t key[static BOX_KEY_BYTES], const struct box_label *label, struct str plain,
             struct buf *to) WARN_UNUSED;

/*
 * Writes box.n - BOX_OVERHEAD bytes. -EBADMSG: not a box, not for this label, or not of this key; `to` holds zeros
 * then. -ENOMEM. Plain text touches no memory but `to` and the cipher's own block.
 */
int box_open(const uint8_t key[static BOX_KEY_BYTES], const struct box_label *label, struct str box,
             char *to) WARN_UNUSED;

/* Memory that is neither swapped nor dumped, and wiped when it is given back. */
struct locked {
    char *p; /* owned; NULL when n is 0 */
    size_t n;
};

#define LOCKED_NONE ((struct locked){NULL, 0})

/* Zeroed. -ENOMEM, -EAGAIN, -EPERM: RLIMIT_MEMLOCK. */
int locked_new(size_t n, struct locked *ret_memory) WARN_UNUSED;
void locked_free(struct locked *memory);

static inline UNUSED void locked_free_auto_(struct locked *memory)
{
    locked_free(memory);
}
#define AUTO_LOCKED __attribute__((cleanup(locked_free_auto_)))

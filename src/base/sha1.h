/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-1 (FIPS 180-4), for old formats that ask for it. It resists no attacker: nothing that has to may use it. */
#pragma once

#include "base/str.h"

enum { SHA1_BYTES = 20 };

struct sha1 {
    uint32_t h[5];
    uint64_t bytes;
    uint8_t block[64];
};

void sha1_init(struct sha1 *s);
void sha1_add(struct sha1 *s, struct str bytes);
void sha1_end(struct sha1 *s, uint8_t ret_digest[static SHA1_BYTES]);

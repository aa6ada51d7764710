/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha1.h"

static uint32_t sha1_rotate(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

/* One round; the five words take turns, so that none has to be moved. */
#define ROUND(a, b, c, d, e, f, k, w)                                                                                  \
    do {                                                                                                               \
        (e) += sha1_rotate(a, 5) + (f) + (k) + (w);                                                                    \
        (b) = sha1_rotate(b, 30);                                                                                      \
    } while (0)

#define FIVE(f, k, i)                                                                                                  \
    do {                                                                                                               \
        ROUND(a, b, c, d, e, f(b, c, d), k, w[i]);                                                                     \
        ROUND(e, a, b, c, d, f(a, b, c), k, w[(i) + 1]);                                                               \
        ROUND(d, e, a, b, c, f(e, a, b), k, w[(i) + 2]);                                                               \
        ROUND(c, d, e, a, b, f(d, e, a), k, w[(i) + 3]);                                                               \
        ROUND(b, c, d, e, a, f(c, d, e), k, w[(i) + 4]);                                                               \
    } while (0)

#define CHOOSE(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define PARITY(x, y, z) ((x) ^ (y) ^ (z))
#define MAJORITY(x, y, z) (((x) & (y)) | ((z) & ((x) | (y))))

static void take_block(struct sha1 *s, const uint8_t *p)
{
    uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
    for (size_t i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (size_t i = 16; i < 80; i++)
        w[i] = sha1_rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (size_t i = 0; i < 20; i += 5)
        FIVE(CHOOSE, 0x5a827999, i);
    for (size_t i = 20; i < 40; i += 5)
        FIVE(PARITY, 0x6ed9eba1, i);
    for (size_t i = 40; i < 60; i += 5)
        FIVE(MAJORITY, 0x8f1bbcdc, i);
    for (size_t i = 60; i < 80; i += 5)
        FIVE(PARITY, 0xca62c1d6, i);
    s->h[0] += a;
    s->h[1] += b;
    s->h[2] += c;
    s->h[3] += d;
    s->h[4] += e;
}

void sha1_init(struct sha1 *s)
{
    *s = (struct sha1){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void sha1_add(struct sha1 *s, struct str bytes)
{
    while (bytes.n) {
        size_t at = s->bytes % sizeof(s->block), n = MIN(sizeof(s->block) - at, bytes.n);
        if (n == sizeof(s->block)) {
            take_block(s, (const uint8_t *)bytes.p);
        } else {
            memcpy(s->block + at, bytes.p, n);
            if (at + n == sizeof(s->block))
                take_block(s, s->block);
        }
        s->bytes += n;
        bytes = str_sub(bytes, n);
    }
}

void sha1_end(struct sha1 *s, uint8_t ret_digest[static SHA1_BYTES])
{
    static const char pad[64] = {(char)0x80};
    uint64_t bits = s->bytes * 8;
    char length[8];
    for (size_t i = 0; i < 8; i++)
        length[i] = (char)(bits >> (56 - 8 * i));
    sha1_add(s, str_n(pad, (119 - s->bytes % 64) % 64 + 1));
    sha1_add(s, str_n(length, sizeof(length)));
    for (size_t i = 0; i < SHA1_BYTES; i++)
        ret_digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

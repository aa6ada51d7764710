/* SPDX-License-Identifier: Apache-2.0 */
#include "base/char.h"

uint32_t char_take(struct str *s)
{
    const unsigned char *p = (const unsigned char *)s->p;
    const size_t n = p[0] < 0xc0 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7fU >> n);
    size_t i = 1;
    for (; i < n && i < s->n && (p[i] & 0xc0) == 0x80; i++)
        c = c << 6 | (p[i] & 0x3fU);
    c = i == n ? c : p[0];
    *s = str_sub(*s, i == n ? n : 1);
    return c;
}

bool char_is_hidden(uint32_t c)
{
    static const uint32_t hidden[][2] = {
        {0xad, 0xad},     {0x34f, 0x34f},   {0x61c, 0x61c},   {0x115f, 0x1160},   {0x17b4, 0x17b5},
        {0x180b, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},   {0x3164, 0x3164},
        {0xfe00, 0xfe0e}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xe0000, 0xe0fff},
    };
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (c >= hidden[i][0] && c <= hidden[i][1])
            return true;
    return false;
}

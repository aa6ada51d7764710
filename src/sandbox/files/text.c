/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/files/text.h"

static size_t char_len(struct str s)
{
    unsigned char c = (unsigned char)s.p[0];
    size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;
    return n && n <= s.n && str_is_utf8(str_n(s.p, n)) ? n : 0;
}

void text_clean(struct str s, char *ret_text, size_t size)
{
    size_t at = 0;
    while (s.n) {
        size_t n = char_len(s);
        bool bad = n == 0 || (n == 1 && ((unsigned char)s.p[0] < 0x20 || s.p[0] == 0x7f));
        if (at + MAX(n, (size_t)1) >= size)
            break;
        if (bad)
            ret_text[at++] = '?';
        else
            for (size_t i = 0; i < n; i++)
                ret_text[at++] = s.p[i];
        s = str_sub(s, MAX(n, (size_t)1));
    }
    ret_text[at] = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"

#include <stdlib.h>
#include <sys/random.h>

void id_random_bytes(void *p, size_t n)
{
    unsigned char *to = p;
    while (n) {
        ssize_t r = getrandom(to, n, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            abort();
        to += r;
        n -= (size_t)r;
    }
}

void id_token(char *ret_s, size_t n)
{
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char pool[64];
    size_t have = 0;
    for (size_t i = 0; i < n;) {
        if (!have) {
            have = sizeof(pool);
            id_random_bytes(pool, have);
        }
        unsigned char c = pool[--have];
        if (c < 252) /* 7 * 36: every character equally likely */
            ret_s[i++] = alphabet[c % 36];
    }
    ret_s[n] = 0;
}

void id_sandbox(char ret_id[static ID_SANDBOX_LEN + 1])
{
    ret_id[0] = 'i';
    id_token(ret_id + 1, ID_SANDBOX_LEN - 1);
}

void id_port_alias(char ret_alias[static ID_SANDBOX_LEN + 1])
{
    ret_alias[0] = 'p';
    id_token(ret_alias + 1, ID_SANDBOX_LEN - 1);
}

static bool id_is(struct str s, char first)
{
    return s.n == ID_SANDBOX_LEN && s.p[0] == first && str_is_of(s, "a-z0-9");
}

bool id_is_sandbox(struct str s)
{
    return id_is(s, 'i');
}

bool id_is_port_alias(struct str s)
{
    return id_is(s, 'p');
}

void id_uuid(char ret_uuid[static ID_UUID_LEN + 1])
{
    unsigned char b[16];
    id_random_bytes(b, sizeof(b));
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    (void)snprintf(ret_uuid, ID_UUID_LEN + 1, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
                   b[15]);
}

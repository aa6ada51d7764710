/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/key_name.h"

#include <openssl/sha.h>

void key_name(const char *prefix, struct str key, char ret_name[static KEY_NAME_MAX])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    int n = snprintf(ret_name, KEY_NAME_MAX, "%.16s", prefix);
    if (key.n == 0)
        return;
    (void)SHA256((const unsigned char *)key.p, key.n, hash);
    (void)snprintf(ret_name + n, KEY_NAME_MAX - (size_t)n, ":%02x%02x%02x%02x", hash[0], hash[1], hash[2], hash[3]);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "image/apply/test_tar.h"

#include <stdio.h>

enum { BLOCK = 512 };

void test_tar_add(struct buf *tar, char type, const char *name, const char *link, const char *data, unsigned mode)
{
    char h[BLOCK] = {0};
    size_t size = data ? strlen(data) : 0;
    unsigned sum = 0;
    (void)snprintf(h, 100, "%s", name);
    (void)snprintf(h + 100, 8, "%07o", mode);
    (void)snprintf(h + 108, 8, "%07o", 0U);
    (void)snprintf(h + 116, 8, "%07o", 0U);
    (void)snprintf(h + 124, 12, "%011o", (unsigned)size);
    (void)snprintf(h + 136, 12, "%011o", 1600000000U);
    memset(h + 148, ' ', 8);
    h[156] = type;
    (void)snprintf(h + 157, 100, "%s", link ? link : "");
    memcpy(h + 257, "ustar\00000", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    (void)snprintf(h + 148, 8, "%06o", sum);
    buf_append(tar, h, BLOCK);
    if (size > 0) {
        static const char zeros[BLOCK];
        buf_append(tar, data, size);
        buf_append(tar, zeros, (BLOCK - size % BLOCK) % BLOCK);
    }
}

void test_tar_end(struct buf *tar)
{
    static const char zeros[2 * BLOCK];
    buf_append(tar, zeros, sizeof(zeros));
}

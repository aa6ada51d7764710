/* SPDX-License-Identifier: Apache-2.0 */
/* The format is that of sun.security.provider.JavaKeyStore: big-endian numbers, strings with a length of two bytes, a keyed SHA-1 behind all of it. */
#include "agent/jks.h"
#include "base/sha1.h"

#include <stdio.h>

enum { MAGIC = 0xfeedfeed, VERSION = 2, TAG_TRUSTED = 2, HEADER_BYTES = 12, DER_MAX = 64 * 1024 };

static void put(struct buf *b, uint64_t value, unsigned bytes)
{
    while (bytes--)
        (void)buf_append_char(b, (char)(value >> (8 * bytes)));
}

static uint32_t get(const char *p)
{
    const uint8_t *u = (const uint8_t *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static void put_text(struct buf *b, struct str s)
{
    put(b, s.n, 2);
    (void)buf_append_str(b, s);
}

bool jks_is(struct str s)
{
    return s.n >= HEADER_BYTES + SHA1_BYTES && get(s.p) == MAGIC && get(s.p + 4) == VERSION &&
           get(s.p + 8) < UINT32_MAX / 2;
}

size_t jks_begin(struct buf *b, struct str old)
{
    if (jks_is(old)) {
        (void)buf_append(b, old.p, old.n - SHA1_BYTES);
    } else {
        put(b, MAGIC, 4);
        put(b, VERSION, 4);
        put(b, 0, 4);
    }
    return buf_len(b);
}

static void add(struct buf *b, size_t known, struct str der, const char *alias)
{
    char name[64];
    if (!der.n || buf_error(b) || memmem(buf_data(b), known, der.p, der.n))
        return;
    uint32_t n = get(buf_data(b) + 8) + 1;
    int length = snprintf(name, sizeof(name), "%.40s-%u", alias, n);
    put(b, TAG_TRUSTED, 4);
    put_text(b, str_n(name, (size_t)length));
    put(b, 0, 8); /* when it was added */
    put_text(b, STR("X.509"));
    put(b, der.n, 4);
    (void)buf_append_str(b, der);
    for (unsigned i = 0; i < 4; i++)
        buf_data(b)[8 + i] = (char)(n >> (24 - 8 * i));
}

static void decode(struct buf *to, struct str body)
{
    AUTO_BUF struct buf text = BUF_INIT(2 * DER_MAX);
    for (size_t i = 0; i < body.n;) {
        size_t from = i;
        while (i < body.n && (unsigned char)body.p[i] > ' ')
            i++;
        (void)buf_append(&text, body.p + from, i - from);
        while (i < body.n && (unsigned char)body.p[i] <= ' ')
            i++;
    }
    if (buf_error(&text) || buf_append_unbase64(to, buf_str(&text)) < 0)
        buf_clear(to);
}

void jks_add_pem(struct buf *b, size_t known, struct str pem, const char *alias)
{
    const struct str begin = STR("-----BEGIN CERTIFICATE-----"), end = STR("-----END CERTIFICATE-----");
    AUTO_BUF struct buf der = BUF_INIT(DER_MAX);
    for (;;) {
        const char *from = pem.n ? memmem(pem.p, pem.n, begin.p, begin.n) : NULL;
        if (!from)
            break;
        pem = str_sub(pem, (size_t)(from - pem.p) + begin.n);
        const char *to = memmem(pem.p, pem.n, end.p, end.n);
        if (!to)
            break;
        buf_clear(&der);
        decode(&der, str_n(pem.p, (size_t)(to - pem.p)));
        add(b, known, buf_str(&der), alias);
        pem = str_sub(pem, (size_t)(to - pem.p) + end.n);
    }
}

int jks_end(struct buf *b)
{
    static const char password[] = "\0c\0h\0a\0n\0g\0e\0i\0t";
    struct sha1 s;
    uint8_t digest[SHA1_BYTES];
    if (buf_error(b))
        return buf_error(b);
    sha1_init(&s);
    sha1_add(&s, str_n(password, sizeof(password) - 1));
    sha1_add(&s, STR("Mighty Aphrodite"));
    sha1_add(&s, buf_str(b));
    sha1_end(&s, digest);
    return buf_append(b, digest, sizeof(digest));
}

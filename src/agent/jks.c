/* SPDX-License-Identifier: Apache-2.0 */
/* The format is that of sun.security.provider.JavaKeyStore: big-endian numbers, strings with a length of two bytes, a
 * keyed SHA-1 behind all of it. */
#include "agent/jks.h"
#include "base/sha1.h"

enum { MAGIC = 0xfeedfeed, VERSION = 2, TAG_TRUSTED = 2, HEADER_BYTES = 12, DER_MAX = 64 * 1024 };

static void jks_put(struct buf *b, uint64_t value, unsigned bytes)
{
    while (bytes--)
        (void)buf_append_char(b, (char)(value >> (8 * bytes)));
}

static uint32_t jks_get(const char *p)
{
    const uint8_t *u = (const uint8_t *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static void jks_put_text(struct buf *b, struct str s)
{
    jks_put(b, s.n, 2);
    (void)buf_append_str(b, s);
}

bool jks_is(struct str s)
{
    return s.n >= HEADER_BYTES + SHA1_BYTES && jks_get(s.p) == MAGIC && jks_get(s.p + 4) == VERSION &&
           jks_get(s.p + 8) < UINT32_MAX / 2;
}

size_t jks_begin(struct buf *b, struct str old)
{
    if (jks_is(old)) {
        (void)buf_append(b, old.p, old.n - SHA1_BYTES);
    } else {
        jks_put(b, MAGIC, 4);
        jks_put(b, VERSION, 4);
        jks_put(b, 0, 4);
    }
    return buf_len(b);
}

static void jks_add(struct buf *b, size_t known, struct str der, const char *alias)
{
    char name[64];
    /* Among the entries: the count in the header changes. */
    if (!der.n || buf_error(b) || memmem(buf_data(b) + HEADER_BYTES, known - HEADER_BYTES, der.p, der.n))
        return;
    uint32_t n = jks_get(buf_data(b) + 8) + 1;
    int length = snprintf(name, sizeof(name), "%.40s-%u", alias, n);
    jks_put(b, TAG_TRUSTED, 4);
    jks_put_text(b, str_n(name, (size_t)length));
    jks_put(b, 0, 8); /* when it was added */
    jks_put_text(b, STR("X.509"));
    jks_put(b, der.n, 4);
    (void)buf_append_str(b, der);
    for (unsigned i = 0; i < 4; i++)
        buf_data(b)[8 + i] = (char)(n >> (24 - 8 * i));
}

/* Plus one: 0 is no digit. */
static const signed char values[256] = {
    ['A'] = 1, 2,  3,  4,  5,          6,  7,  8,  9,  10, 11,         12, 13, 14, 15,         16,
    17,        18, 19, 20, 21,         22, 23, 24, 25, 26, ['a'] = 27, 28, 29, 30, 31,         32,
    33,        34, 35, 36, 37,         38, 39, 40, 41, 42, 43,         44, 45, 46, 47,         48,
    49,        50, 51, 52, ['0'] = 53, 54, 55, 56, 57, 58, 59,         60, 61, 62, ['+'] = 63, ['/'] = 64,
};

/* Most of the text: four digits in a row. */
static bool take_four(const uint8_t *from, size_t n, uint8_t *to)
{
    if (n < 4 || !values[from[0]] || !values[from[1]] || !values[from[2]] || !values[from[3]])
        return false;
    uint32_t bits = (uint32_t)(values[from[0]] - 1) << 18 | (uint32_t)(values[from[1]] - 1) << 12 |
                    (uint32_t)(values[from[2]] - 1) << 6 | (uint32_t)(values[from[3]] - 1);
    to[0] = (uint8_t)(bits >> 16);
    to[1] = (uint8_t)(bits >> 8);
    to[2] = (uint8_t)bits;
    return true;
}

/* Base64 with blanks anywhere. Empty when it is anything else. */
static void decode(struct buf *to, struct str body)
{
    buf_clear(to);
    uint8_t *out = (uint8_t *)buf_reserve(to, body.n);
    uint32_t bits = 0;
    size_t n = 0, digits = 0, padding = 0;
    for (size_t i = 0; out && i < body.n; i++) {
        while (digits % 4 == 0 && !padding && take_four((const uint8_t *)body.p + i, body.n - i, out + n)) {
            digits += 4;
            n += 3;
            i += 4;
        }
        if (i == body.n)
            break;
        unsigned char c = (unsigned char)body.p[i];
        if (c <= ' ')
            continue;
        padding += c == '=';
        if ((padding && c != '=') || (c != '=' && !values[c]))
            return;
        bits = bits << 6 | (c == '=' ? 0 : (uint32_t)values[c] - 1);
        if (++digits % 4)
            continue;
        out[n++] = (uint8_t)(bits >> 16);
        out[n++] = (uint8_t)(bits >> 8);
        out[n++] = (uint8_t)bits;
    }
    if (out && digits % 4 == 0 && padding <= 2)
        buf_commit(to, n - padding);
}

void jks_add_pem(struct buf *b, size_t known, struct str pem, const char *alias)
{
    const struct str begin = STR("-----BEGIN CERTIFICATE-----"), end = STR("-----END CERTIFICATE-----");
    AUTO_BUF struct buf der = BUF_INIT(DER_MAX);
    if (!buf_reserve(b, pem.n)) /* it will be shorter */
        return;
    for (;;) {
        const char *from = pem.n ? memmem(pem.p, pem.n, begin.p, begin.n) : NULL;
        if (!from)
            break;
        pem = str_sub(pem, (size_t)(from - pem.p) + begin.n);
        const char *to = memmem(pem.p, pem.n, end.p, end.n);
        if (!to)
            break;
        decode(&der, str_n(pem.p, (size_t)(to - pem.p)));
        jks_add(b, known, buf_str(&der), alias);
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

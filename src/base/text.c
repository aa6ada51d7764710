/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings that are appended to a buf: JSON strings, base64, hexadecimal. */
#include "base/buf.h"

static const char hex_digits[] = "0123456789abcdef";

/* Length of the well-formed UTF-8 sequence at p, or 0. */
static size_t utf8_len(const char *p, size_t n)
{
    unsigned char c = (unsigned char)*p;
    size_t len = c < 0x80 ? 1 : (c & 0xe0) == 0xc0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : (c & 0xf8) == 0xf0 ? 4 : 0;
    return len && len <= n && str_is_utf8(str_n(p, len)) ? len : 0;
}

int buf_append_json_string(struct buf *b, struct str s)
{
    buf_append_char(b, '"');
    size_t from = 0, i = 0;
    if (s.n == 0)
        return buf_append_char(b, '"');
    while (i < s.n) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            i++;
            continue;
        }
        if (c >= 0x80) {
            size_t len = utf8_len(s.p + i, s.n - i);
            if (len) {
                i += len;
                continue;
            }
        }
        buf_append(b, s.p + from, i - from);
        if (c == '"' || c == '\\') {
            char esc[2] = {'\\', (char)c};
            buf_append(b, esc, 2);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            char esc[2] = {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'};
            buf_append(b, esc, 2);
        } else if (c < 0x80) {
            char esc[6] = {'\\', 'u', '0', '0', hex_digits[c >> 4], hex_digits[c & 15]};
            buf_append(b, esc, 6);
        } else {
            buf_append_cstr(b, "\\ufffd");
        }
        from = ++i;
    }
    buf_append(b, s.p + from, i - from);
    return buf_append_char(b, '"');
}

int buf_append_base64(struct buf *b, struct str s)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (s.n > b->max)
        return b->error = b->error ? b->error : -ENOBUFS;
    size_t out = (s.n + 2) / 3 * 4;
    char *to = buf_reserve(b, out);
    if (!to)
        return b->error;
    const unsigned char *p = (const unsigned char *)s.p;
    size_t i = 0;
    for (; i + 3 <= s.n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];
        *to++ = alphabet[v >> 18];
        *to++ = alphabet[v >> 12 & 63];
        *to++ = alphabet[v >> 6 & 63];
        *to++ = alphabet[v & 63];
    }
    if (i < s.n) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < s.n ? (uint32_t)p[i + 1] << 8 : 0);
        *to++ = alphabet[v >> 18];
        *to++ = alphabet[v >> 12 & 63];
        *to++ = i + 1 < s.n ? alphabet[v >> 6 & 63] : '=';
        *to++ = '=';
    }
    buf_commit(b, out);
    return 0;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int buf_append_unbase64(struct buf *b, struct str s)
{
    if (s.n % 4 == 0 && s.n && s.p[s.n - 1] == '=')
        s.n -= s.p[s.n - 2] == '=' ? 2 : 1;
    if (s.n % 4 == 1)
        return -EILSEQ;
    size_t out = s.n / 4 * 3 + (s.n % 4 ? s.n % 4 - 1 : 0);
    char *to = buf_reserve(b, out);
    if (!to)
        return b->error;
    uint32_t acc = 0;
    int bits = 0;
    size_t k = 0;
    for (size_t i = 0; i < s.n; i++) {
        int v = base64_value(s.p[i]);
        if (v < 0)
            return -EILSEQ;
        acc = acc << 6 | (uint32_t)v;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            to[k++] = (char)(acc >> bits & 0xff);
        }
    }
    assert(k == out);
    buf_commit(b, out);
    return 0;
}

int buf_append_hex(struct buf *b, struct str s)
{
    char *to = s.n <= b->max / 2 ? buf_reserve(b, s.n * 2) : NULL;
    if (!to)
        return b->error = b->error ? b->error : -ENOBUFS;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        *to++ = hex_digits[c >> 4];
        *to++ = hex_digits[c & 15];
    }
    buf_commit(b, s.n * 2);
    return 0;
}

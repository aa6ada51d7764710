/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two readers. The outer one walks over records, each time from where it had stopped, and knows how much of the message
 * is there. Once all of it is, the inner one reads it across the borders of records:
 *
 *  1. It never sees a byte behind what the outer one has counted: the message is complete and every record of it is a
 *     handshake record that is not empty.
 *  2. `left` is what the innermost open length allows. Reading beyond it fails, as does closing a length with a rest;
 *     after a failure nothing more is read.
 *
 * RFC 5246, 6066 (SNI), 7301 (ALPN), 8446; draft-ietf-tls-esni (ECH, and the code points of its predecessors).
 */
#include "egress/tls/hello.h"

enum { RECORD_HEADER = 5, RECORD_MAX = 16384, RECORD_HANDSHAKE = 22, RECORD_FIRST = 20, RECORD_LAST = 26 };
enum { MESSAGE_HEADER = 4, MESSAGE_CLIENT_HELLO = 1 };
enum { VERSION_TLS10 = 0x0301, VERSION_TLS13 = 0x0304 };

enum extension {
    EXT_SERVER_NAME = 0,
    EXT_ALPN = 16,
    EXT_PRE_SHARED_KEY = 41,
    EXT_SUPPORTED_VERSIONS = 43,
    EXT_ECH_OUTER_EXTENSIONS = 0xfd00,
    EXT_ECH_DRAFT_FIRST = 0xfe08,
    EXT_ECH = 0xfe0d,
    EXT_ESNI = 0xffce,
};

struct hello_reader {
    const uint8_t *p;
    size_t fragment; /* of this record, not read yet */
    size_t left;
    bool failed;
};

static uint32_t hello_take(struct hello_reader *r, size_t width)
{
    if (r->left < width) {
        r->failed = true;
        r->left = 0;
        return 0;
    }
    r->left -= width;
    uint32_t value = 0;
    for (; width; width--) {
        if (!r->fragment) {
            r->fragment = (size_t)r->p[3] << 8 | r->p[4];
            r->p += RECORD_HEADER;
        }
        r->fragment--;
        value = value << 8 | *r->p++;
    }
    return value;
}

static void hello_skip(struct hello_reader *r, size_t n)
{
    for (; n && !r->failed; n--)
        (void)hello_take(r, 1);
}

/* A length of `width` bytes; until it is closed only that much can be read. Returns what close_length() needs. */
static size_t open_length(struct hello_reader *r, size_t width)
{
    size_t n = hello_take(r, width);
    if (r->left < n)
        r->failed = true;
    size_t outer = r->failed ? 0 : r->left - n;
    r->left = r->failed ? 0 : n;
    return outer;
}

static void close_length(struct hello_reader *r, size_t outer)
{
    if (r->left)
        r->failed = true;
    r->left = r->failed ? 0 : outer;
}

static enum hello_result hello_bad(struct hello *h, const char *reason)
{
    h->reason = reason;
    return HELLO_BAD;
}

static const char *read_server_name(struct hello_reader *r, struct hello *h)
{
    size_t outer = open_length(r, 2);
    uint32_t type = hello_take(r, 1);
    size_t after = open_length(r, 2);
    if (r->failed)
        return "server name: cut";
    if (type != 0)
        return "server name: of unknown kind";
    if (r->left == 0)
        return "server name: empty";
    if (r->left > HELLO_NAME_MAX)
        return "server name: too long";
    for (h->name_len = 0; r->left; h->name_len++)
        h->name[h->name_len] = (char)hello_take(r, 1);
    close_length(r, after);
    if (r->left)
        return "server name: more than one";
    close_length(r, outer);
    return NULL;
}

static const char *read_alpn(struct hello_reader *r, struct hello *h)
{
    size_t outer = open_length(r, 2);
    if (r->failed || r->left == 0)
        return "ALPN: empty or cut";
    if (r->left > HELLO_ALPN_MAX)
        return "ALPN: too long";
    for (h->alpn_len = 0; r->left; h->alpn_len++)
        h->alpn[h->alpn_len] = (uint8_t)hello_take(r, 1);
    close_length(r, outer);
    for (size_t i = 0; i < h->alpn_len; i += 1 + (size_t)h->alpn[i])
        if (h->alpn[i] == 0 || h->alpn_len - i <= h->alpn[i])
            return "ALPN: a protocol without a name, or cut";
    return NULL;
}

static const char *read_versions(struct hello_reader *r, struct hello *h)
{
    uint16_t best = 0;
    size_t outer = open_length(r, 1);
    if (r->failed || r->left == 0 || r->left % 2)
        return "supported versions: empty or cut";
    while (r->left) {
        uint32_t version = hello_take(r, 2);
        if (version < VERSION_TLS10)
            return "SSLv3 or older is offered";
        if (version <= VERSION_TLS13)
            best = MAX(best, (uint16_t)version);
    }
    close_length(r, outer);
    if (!best)
        return "supported versions: none that is known";
    h->best = best;
    return NULL;
}

static const char *read_extension(struct hello_reader *r, struct hello *h, uint32_t type)
{
    switch (type) {
    case EXT_SERVER_NAME:
        return read_server_name(r, h);
    case EXT_ALPN:
        return read_alpn(r, h);
    case EXT_SUPPORTED_VERSIONS:
        return read_versions(r, h);
    case EXT_ECH_OUTER_EXTENSIONS:
        return "encrypted hello: the inner one, in the clear";
    case EXT_ECH:
        if (hello_take(r, 1) != 0)
            return "encrypted hello: not an outer one";
        h->offers_ech = true;
        break;
    case EXT_ESNI:
        h->offers_ech = true;
        break;
    default:
        h->offers_ech = h->offers_ech || (type >= EXT_ECH_DRAFT_FIRST && type < EXT_ECH);
    }
    hello_skip(r, r->left);
    return NULL;
}

static const char *read_extensions(struct hello_reader *r, struct hello *h)
{
    uint16_t seen[HELLO_EXTENSIONS_MAX];
    size_t n = 0, outer = open_length(r, 2);
    while (r->left) {
        uint16_t type = (uint16_t)hello_take(r, 2);
        size_t after = open_length(r, 2);
        if (r->failed)
            break;
        for (size_t i = 0; i < n; i++)
            if (seen[i] == type)
                return type == EXT_SERVER_NAME ? "server name: more than one" : "two extensions of one kind";
        if (n == ARRAY_SIZE(seen))
            return "too many extensions";
        seen[n++] = type;
        const char *reason = read_extension(r, h, type);
        if (reason)
            return reason;
        close_length(r, after);
        if (type == EXT_PRE_SHARED_KEY && r->left)
            return "pre_shared_key is not last";
    }
    close_length(r, outer);
    return r->failed ? "extensions: cut, or a wrong length" : NULL;
}

static const char *read_message(struct hello_reader *r, struct hello *h)
{
    h->version = h->best = (uint16_t)hello_take(r, 2);
    if (h->version < VERSION_TLS10)
        return "SSLv3 or older is offered";
    if (h->version > VERSION_TLS13)
        return "unknown version";
    hello_skip(r, 32);
    size_t outer = open_length(r, 1);
    if (r->left > 32)
        return "session id: too long";
    hello_skip(r, r->left);
    close_length(r, outer);
    outer = open_length(r, 2);
    if (r->failed || r->left == 0 || r->left % 2)
        return "cipher suites: none, or cut";
    hello_skip(r, r->left);
    close_length(r, outer);
    outer = open_length(r, 1);
    bool plain = false;
    while (r->left)
        plain |= hello_take(r, 1) == 0;
    close_length(r, outer);
    if (r->failed || !plain)
        return "compression methods: none, or cut";
    return r->left ? read_extensions(r, h) : NULL;
}

/* OpenSSL takes any 3.x in a first record, Go whatever is below 16.0. Others have messages that begin so, too: 22, and
 * the rest of a length. */
static bool has_odd_version(const uint8_t *p, size_t n)
{
    return p[0] == RECORD_HANDSHAKE && n > 1 && p[1] < 16 && (p[1] != 3 || (n > 2 && p[2] > 4));
}

static enum hello_result check_odd_record(struct hello *h, const uint8_t *p, size_t n)
{
    enum { TYPE = RECORD_HEADER, LENGTH };
    size_t size = n < RECORD_HEADER ? 0 : (size_t)p[3] << 8 | p[4];
    if (n >= RECORD_HEADER && (size == 0 || size > RECORD_MAX))
        return HELLO_NOT_TLS;
    if (n > TYPE && p[TYPE] != MESSAGE_CLIENT_HELLO)
        return HELLO_NOT_TLS;
    if (n <= TYPE || (size > 1 && n <= LENGTH))
        return HELLO_NEED_MORE;
    return size > 1 && p[LENGTH] ? HELLO_NOT_TLS : hello_bad(h, "a record of an unknown version");
}

/* The header of a record, of which n bytes are there. HELLO_COMPLETE: a handshake record, as far as can be seen. */
static enum hello_result check_record(struct hello *h, const uint8_t *p, size_t n)
{
    bool first = h->at == 0;
    if (n == 0)
        return HELLO_NEED_MORE;
    if (first && p[0] >= 0x80) { /* SSLv2 has two bytes of length, then the type of the message and a version */
        if (n < RECORD_HEADER)
            return n < 3 || p[2] == MESSAGE_CLIENT_HELLO ? HELLO_NEED_MORE : HELLO_NOT_TLS;
        bool old = p[2] == MESSAGE_CLIENT_HELLO && ((p[3] == 0 && p[4] == 2) || p[3] == 3);
        return old ? hello_bad(h, "a hello of SSLv2") : HELLO_NOT_TLS;
    }
    if (first && has_odd_version(p, n))
        return check_odd_record(h, p, n);
    if (first && (p[0] < RECORD_FIRST || p[0] > RECORD_LAST || (n > 1 && p[1] != 3) || (n > 2 && p[2] > 4)))
        return HELLO_NOT_TLS;
    if (n >= 3 && (p[0] != RECORD_HANDSHAKE || p[1] != 3 || p[2] > 4))
        return hello_bad(h,
                         first ? "begins with a record that is not a handshake" : "another record inside of the hello");
    if (n < RECORD_HEADER)
        return HELLO_NEED_MORE;
    size_t size = (size_t)p[3] << 8 | p[4];
    return size == 0 || size > RECORD_MAX ? hello_bad(h, "a record of impossible length") : HELLO_COMPLETE;
}

/* The message has n bytes by now, and will have `promised` when this record is whole. */
static enum hello_result check_message(struct hello *h, const uint8_t *all, size_t n, size_t promised)
{
    struct hello_reader r = {.p = all, .left = n};
    if (n >= 1 && hello_take(&r, 1) != MESSAGE_CLIENT_HELLO)
        return hello_bad(h, "a handshake message that is not a ClientHello");
    if (n < MESSAGE_HEADER)
        return HELLO_NEED_MORE;
    size_t size = hello_take(&r, 3);
    if (size > HELLO_MESSAGE_MAX)
        return hello_bad(h, "too long");
    if (promised > MESSAGE_HEADER + size)
        return hello_bad(h, "something behind the hello");
    if (n < MESSAGE_HEADER + size)
        return HELLO_NEED_MORE;
    r.left = size;
    const char *reason = read_message(&r, h);
    if (reason)
        return hello_bad(h, reason);
    return r.failed || r.left ? hello_bad(h, "cut, or a wrong length") : HELLO_COMPLETE;
}

static enum hello_result egress_hello_feed(struct hello *h, struct str all)
{
    const uint8_t *bytes = (const uint8_t *)all.p;
    for (;;) {
        const uint8_t *record = bytes + h->at;
        size_t n = all.n - h->at;
        enum hello_result result = check_record(h, record, n);
        if (result != HELLO_COMPLETE)
            return result;
        size_t size = (size_t)record[3] << 8 | record[4];
        size_t here = MIN(n - RECORD_HEADER, size);
        result = check_message(h, bytes, h->whole + here, h->whole + size);
        if (result == HELLO_COMPLETE)
            h->size = h->at + RECORD_HEADER + size;
        if (result != HELLO_NEED_MORE || here < size)
            return result;
        h->at += RECORD_HEADER + size;
        h->whole += size;
    }
}

void hello_init(struct hello *h)
{
    *h = (struct hello){.result = HELLO_NEED_MORE};
}

enum hello_result hello_feed(struct hello *h, struct str all)
{
    if (h->result != HELLO_NEED_MORE)
        return h->result;
    assert(all.n >= h->at);
    all.n = MIN(all.n, HELLO_BYTES_MAX); /* in whatever pieces it comes, the answer is the same */
    h->result = all.n ? egress_hello_feed(h, all) : HELLO_NEED_MORE;
    if (h->result == HELLO_NEED_MORE && all.n >= HELLO_BYTES_MAX)
        h->result = hello_bad(h, "too long");
    return h->result;
}

bool hello_alpn_next(const struct hello *h, size_t *it, struct str *ret_protocol)
{
    if (*it >= h->alpn_len)
        return false;
    *ret_protocol = str_n(h->alpn + *it + 1, h->alpn[*it]);
    *it += 1 + ret_protocol->n;
    return true;
}

bool hello_alpn_has(const struct hello *h, struct str protocol)
{
    struct str one;
    for (size_t it = 0; hello_alpn_next(h, &it, &one);)
        if (str_eq(one, protocol))
            return true;
    return false;
}

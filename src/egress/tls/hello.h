/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first flight of a connection: is it a TLS ClientHello, and for whom? Reads what stands in the clear, allocates
 * nothing, changes nothing: the bytes go on to the server, or to our own end of TLS, as they came.
 *
 *   struct hello h;
 *   hello_init(&h);
 *   ... more was received ...
 *   switch (hello_feed(&h, everything so far)) ...
 *
 * Stricter than servers are: what two readers could understand differently is BAD, because the one behind us may be the
 * other reader. So no second name or second extension of a kind, no length that leaves a rest, no SSLv3, no record of
 * another type in between.
 */
#pragma once

#include "base/str.h"

enum {
    HELLO_MESSAGE_MAX = 18 * 1024, /* the handshake message: 16 KiB, and post-quantum key shares */
    HELLO_BYTES_MAX = 24 * 1024,   /* with record headers: no client cuts it into that many records */
    HELLO_NAME_MAX = 255,
    HELLO_ALPN_MAX = 255,
    HELLO_EXTENSIONS_MAX = 128,
};

enum hello_result {
    HELLO_NEED_MORE, /* so far it is the beginning of one */
    HELLO_COMPLETE,
    HELLO_NOT_TLS, /* the first byte or two say so */
    HELLO_BAD,     /* TLS, or meant to look like it, but not to be passed on: hello.reason */
};

struct hello {
    char name[HELLO_NAME_MAX + 1]; /* SNI as sent, not normalised; may hold any byte. See hello_name() */
    size_t name_len;               /* 0: there was no such extension */
    uint8_t alpn[HELLO_ALPN_MAX];  /* the list as sent; see hello_alpn_next() */
    size_t alpn_len;
    uint16_t version;   /* legacy_version, 0x0301 and up */
    uint16_t best;      /* the highest known version that is offered: 0x0301 to 0x0304 */
    bool offers_ech;    /* encrypted_client_hello: name is the outer one, if any */
    const char *reason; /* of HELLO_BAD: a literal, for people */
    size_t size;        /* when complete: bytes that it took, with record headers */
    /* private: how far it was read */
    size_t at, whole;
    enum hello_result result;
};

void hello_init(struct hello *h);

/* all: everything that was received, from the first byte on; call again with more of it. The result stays once it is
 * not HELLO_NEED_MORE. */
enum hello_result hello_feed(struct hello *h, struct str all);

static inline struct str hello_name(const struct hello *h)
{
    return h->name_len ? str_n(h->name, h->name_len) : STR_NULL;
}

/* Protocols in the client's order: size_t it = 0; while (hello_alpn_next(h, &it, &protocol)). */
bool hello_alpn_next(const struct hello *h, size_t *it, struct str *ret_protocol);
bool hello_alpn_has(const struct hello *h, struct str protocol);

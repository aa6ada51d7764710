/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Framing of the Connect RPC protocol, JSON codec. Streams carry envelopes: a flag byte, the length as
 * four big-endian bytes, a JSON message. The last one of a response has CONNECT_FLAG_END and holds {} or
 * {"error":{...}}. Unary calls have bare JSON bodies, and errors by HTTP status.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { CONNECT_HEAD = 5, CONNECT_FLAG_COMPRESSED = 0x01, CONNECT_FLAG_END = 0x02 };

/* ---- writing ---- */

/*
 * The five bytes in front of a message of n bytes (n < 4 GiB): for http_response_writev() without copying the message.
 */
void connect_head(uint8_t ret_head[static CONNECT_HEAD], uint8_t flags, size_t n);

int connect_append(struct buf *b, uint8_t flags, struct str message); /* head and message */

/* The end-of-stream envelope: {} for ERR_OK, else {"error":{"code":"...","message":"..."}}. */
int connect_append_end(struct buf *b, enum err_code code, struct str message);

/* The body of a failed unary call: {"code":"not_found","message":"..."}; its HTTP status: connect_status(). */
int connect_append_error(struct buf *b, enum err_code code, struct str message);

int connect_status(enum err_code code); /* 404 for ERR_NOT_FOUND ...; 200 for ERR_OK */

/* ---- reading ---- */

/*
 * A body that must be exactly one envelope of at most max bytes, without flags or (ret_compressed not NULL) compressed.
 * 0, or
 *   -EMSGSIZE   the message is longer than max
 *   -ENOTSUP    compressed
 *   -EPROTO     another flag, a length that is not that of the rest, a second envelope, a truncated head
 */
int connect_decode_one(struct str body, size_t max, bool *ret_compressed, struct str *ret_message) WARN_UNUSED;

enum connect_result {
    CONNECT_NEED_MORE, /* all input was taken */
    CONNECT_MESSAGE,   /* *ret_message lives until the next call or as long as the input; call again for what is left */
};

/* For client streams: envelopes in whatever pieces they arrive. Holds at most max bytes. */
struct connect_decoder {
    struct buf message; /* owned: the part received so far when a message spans pieces */
    size_t want;        /* bytes of the message that are still missing, once its head is complete */
    uint8_t head[CONNECT_HEAD];
    uint8_t head_len;
    bool may_compress; /* the caller's: it takes compressed messages */
    bool handed_out;
    int error;
};

void connect_decoder_init(struct connect_decoder *d, size_t max);
void connect_decoder_fini(struct connect_decoder *d);

/* Takes bytes from *in. An enum connect_result, or the errors of connect_decode_one(), which then stick. */
int connect_decoder_next(struct connect_decoder *d, struct str *in, struct str *ret_message) WARN_UNUSED;

/* Is the message that was handed out last compressed? */
bool connect_decoder_is_compressed(const struct connect_decoder *d);

/* At the end of the body: 0, or -EPROTO in the middle of an envelope. */
int connect_decoder_end(const struct connect_decoder *d) WARN_UNUSED;

/* Connect-Timeout-Ms: 1 to 10 digits. 1, 0 when absent (p NULL), -EINVAL. */
int connect_parse_timeout(struct str value, uint64_t *ret_ms) WARN_UNUSED;

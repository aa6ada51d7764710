/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming multipart/form-data (RFC 7578), fed in any pieces. Bytes of a part are handed on at once; nothing is held
 * but a part's headers (8 KiB at most) and a possible beginning of a boundary (under 80 bytes).
 */
#pragma once

#include "base/str.h"

struct multipart;

struct multipart_part {
    struct str name;     /* of the form field; empty when absent */
    struct str filename; /* as sent, raw UTF-8, with %22 %0D %0A and backslashed quotes undone; p is NULL when absent */
    struct str content_type; /* p is NULL when absent */
};

/*
 * Each returns 0, or a negative value which multipart_feed() then stops with and returns. Strings are lent for the
 * call.
 */
struct multipart_ops {
    int (*on_part)(const struct multipart_part *part, void *ctx);
    int (*on_data)(struct str data, void *ctx);
    int (*on_part_end)(void *ctx);
};

struct multipart_limits {
    unsigned parts;      /* -E2BIG beyond; 0: 1,000 */
    uint64_t part_bytes; /* of one part: -EFBIG beyond; 0: no limit */
};

/*
 * content_type: the request's header, which holds the boundary. -EINVAL when it is not multipart/form-data or has no
 * valid boundary (1 to 70 characters). ops and limits (NULL: defaults) are copied.
 */
int multipart_new(struct str content_type, const struct multipart_ops *ops, const struct multipart_limits *limits,
                  void *ctx, struct multipart **ret_parser) WARN_UNUSED;
void multipart_free(struct multipart *m);
DEFINE_AUTO(struct multipart *, multipart_free)

/*
 * 0, -EPROTO for malformed input, -EMSGSIZE for too long part headers, a limit's error, or what an op returned. Errors
 * stick.
 */
int multipart_feed(struct multipart *m, struct str data) WARN_UNUSED;

/* At the end of the body: 0 when the closing boundary was seen, -EPROTO else. */
int multipart_end(const struct multipart *m) WARN_UNUSED;

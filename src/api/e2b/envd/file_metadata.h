/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata that a client attaches to files by "X-Metadata-<key>: <value>" headers. */
#pragma once

#include "api/e2b/names.h"
#include "base/err.h"
#include "http/request.h"
#include "sandbox/sandbox.h"

enum { METADATA_KEY_MAX = 246, METADATA_TOTAL_MAX = 4096 };

/* Keys are lower-cased, of several values the first counts. The vector lives in the request's arena.
 * ERR_INVALID_ARGUMENT. */
int file_metadata_read(struct http_request *req, const struct pair **ret_pairs, size_t *ret_n,
                       struct err *err) WARN_UNUSED;

/* One header; exposed for tests. Adds to pairs (room for n + 1) unless the key is there or the header is another
 * one. */
int file_metadata_add(struct http_header header, struct arena *arena, struct pair *pairs, size_t *n,
                      struct err *err) WARN_UNUSED;

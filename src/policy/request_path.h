/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths of HTTP requests, made comparable. Servers do not agree on what a path means: whether %2F separates, whether
 * ";x" belongs to a segment's name, whether "//" is "/". So a path has several readings, one for each kind of server;
 * so has a pattern, and they are compared reading by reading.
 *
 *  1. What means the same everywhere is made the same first: dot segments are removed, %XX of what may stand in a path
 *     as it is becomes that, everything else that may not becomes %XX. Query and what follows are cut off.
 *  2. There is no reading of what only serves to deceive: control characters, backslashes, broken %, a % that was
 *     encoded twice, text that is not UTF-8, a fragment, no "/" in front, more than REQUEST_PATH_MAX bytes.
 */
#pragma once

#include "base/arena.h"

enum { REQUEST_PATH_MAX = 4096, REQUEST_PATH_READINGS = 8 };

/* Several kB: for the stack, made once for each request that is judged. */
struct request_path {
    struct str readings[REQUEST_PATH_READINGS];
    size_t n; /* 1 when all readings are alike, 0 when there is none, else REQUEST_PATH_READINGS */
    char text[REQUEST_PATH_READINGS][REQUEST_PATH_MAX];
};

struct path_pattern {
    struct str readings[REQUEST_PATH_READINGS];
    uint8_t n;
    bool is_prefix;
    const char *text; /* normalised: with "*" at its end when it is a prefix */
};

/* False: it has no reading (and n is 0). */
bool request_path_read(struct str raw, struct request_path *ret_path);

/*
 * "/v1/x": the whole path; "/v1*": all that begins so. False: not a pattern: no readings, dot segments, a query, "*"
 * elsewhere. Lives in the arena.
 */
bool path_pattern_parse(struct str text, struct arena *arena, struct path_pattern *ret_pattern);

/* A path without readings never matches on all and always on any. */
bool path_pattern_matches_all(const struct path_pattern *pattern, const struct request_path *path);
bool path_pattern_matches_any(const struct path_pattern *pattern, const struct request_path *path);

/* SPDX-License-Identifier: Apache-2.0 */
/* The Range header. */
#pragma once

#include "base/arena.h"

enum { RANGES_MAX = 16 };

struct range {
    uint64_t offset, length; /* length > 0; within the file */
};

enum range_result {
    RANGE_WHOLE, /* no header, another unit, an empty file, or so many ranges, or such large ones, that the file is shorter */
    RANGE_PART,          /* one or several */
    RANGE_UNSATISFIABLE, /* 416 */
};

/*
 * One of them, without "bytes=", of a file that is not empty: 1, 0 when it lies behind the end, -1 when it is
 * malformed.
 */
int range_one(struct str spec, uint64_t size, struct range *ret_range) WARN_UNUSED;

/* value: p NULL when the header is absent. Of several ranges those that begin behind the end are left out. */
enum range_result range_parse(struct str value, uint64_t size, struct range ret_ranges[static RANGES_MAX],
                              size_t *ret_n);

/* Content-Range: of that part; NULL: of none, because it can't be. */
struct str range_content(struct arena *arena, const struct range *part, uint64_t size);

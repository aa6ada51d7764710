/* SPDX-License-Identifier: Apache-2.0 */
/* The Range header, for one range. */
#pragma once

#include "base/def.h"
#include "base/str.h"

enum range_result {
    RANGE_WHOLE, /* no header, another unit, several ranges or an empty file: everything is sent */
    RANGE_PART,
    RANGE_UNSATISFIABLE, /* 416 */
};

/* value: p NULL when the header is absent. On RANGE_PART 0 < *ret_length and *ret_offset + *ret_length <= size. */
enum range_result range_parse(struct str value, uint64_t size, uint64_t *ret_offset, uint64_t *ret_length);

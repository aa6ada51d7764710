/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What SUP_DIFF writes into the descriptor that was sent along: one record after the other, in no order, until the end
 * of the file. Native byte order, no alignment. Whether the list is complete is what the answer (wire/supervisor.h)
 * says: it is an error when something was left out.
 *
 * A new directory, or one that took the place of something else, is listed with everything in it; of one that is gone
 * only its own name is. A file whose bytes, owner, mode, capabilities and access lists are the same has not changed,
 * whatever its times are.
 */
#pragma once

#include "base/def.h"

/* What lies deeper or has a longer path is not compared; the answer is ERR_OUT_OF_RANGE then. */
enum { DIFF_PATH_MAX = 4095, DIFF_DEPTH_MAX = 256 };

/* Behind it come path_len bytes: the path relative to the root, any byte but NUL; none: the root itself. */
struct diff_record {
    char kind; /* 'A' added, 'M' modified, 'D' deleted (the rest is what it was) */
    char type; /* 'f' file, 'd' directory, 'l' link, 'c', 'b' devices, 'p' fifo, 's' socket */
    uint16_t path_len;
    uint32_t mode; /* permissions alone */
    uint64_t size; /* of a file or a link */
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What SUP_DIFF writes into the descriptor that was sent along: one record after the other, in no order, until the end of the file. Whether it is all, says
 * the answer (wire/supervisor.h). Native byte order, no alignment.
 *
 * A directory that is new, or took the place of something that was none, is told with all in it; of one that is gone, only that it is. A file whose bytes,
 * owner, mode, capabilities and access lists are the same is no change, whatever its times are. The answer is an error where something was left out.
 */
#pragma once

#include "base/def.h"

enum {
    DIFF_PATH_MAX = 4095,
    DIFF_DEPTH_MAX = 256
}; /* what lies deeper, or is called longer, is not compared: ERR_OUT_OF_RANGE, at the end */

struct diff_record {
    char kind; /* 'A' added, 'M' modified, 'D' deleted (the rest is what it was) */
    char type; /* 'f' file, 'd' directory, 'l' link, 'c', 'b' devices, 'p' fifo, 's' socket */
    uint16_t path_len;
    uint32_t mode; /* permissions alone */
    uint64_t size; /* of a file or a link */
};                 /* path_len bytes follow: relative to the root, any byte but NUL; 0: the root itself */

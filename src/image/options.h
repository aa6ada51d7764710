/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of cove-image (job.h says what they mean). */
#pragma once

#include "base/err.h"

struct image_options {
    int root_fd, job_fd;
    uid_t uid, ids_base;
    uint64_t max_bytes, max_entries;
    unsigned timeout_s, stall_s;
    const char *ca; /* borrowed from argv; NULL: not given */
};

int image_options_parse(int argc, char *const *argv, struct image_options *ret_options, struct err *err) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/* What the host is told about a file: the `entry` of wire/proto.h. */
#pragma once

#include "agent/user.h"
#include "base/buf.h"

enum {
    ENTRY_METADATA_MAX = 8192, /* bytes of keys and values that are reported of one file; writing allows 4,096 */
    ENTRY_MAX = 3 * PATH_TEXT_MAX + 2 * ENTRY_METADATA_MAX,
};

/* Appends the entry of `path`, which is also the path that it shows. 1: it is a directory itself, 0: not; -errno of
 * lstat(2), with nothing appended. */
int entry_put(struct buf *b, struct agent_names *names, const char *path) WARN_UNUSED;

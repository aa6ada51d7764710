/* SPDX-License-Identifier: Apache-2.0 */
/* Whole directory trees of foreign making, as root: links are never followed, mounts never crossed, depth costs no stack or descriptors. */
#pragma once

#include "base/def.h"

/* Deletes dirfd/name and all below it. A file is deleted too. */
int tree_remove(int dirfd, const char *name) WARN_UNUSED;

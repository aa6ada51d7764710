/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether two of a name, one of each stack, are the same: their bytes, owner, mode, capabilities and access lists.
 * Times, other attributes and overlayfs's own do not count.
 *
 * Only one and the same inode of one and the same device is taken for equal without a look at its bytes, and of other
 * files the bytes that both have in the same place of the disk (diff_shared.h). Equal numbers and times on two devices
 * prove nothing: subvolumes that began as clones count their inodes alike, and what runs in both at once is done in the
 * same tick of the clock.
 */
#pragma once

#include "coved/diff/diff_stack.h"

/* Both are there, and of one type. 1: they are the same; 0: they differ, or could not be read; -errno: effort_spend(),
 * or attributes that can't be read. */
int diff_same(struct effort *e, const struct found *a, const struct found *b) WARN_UNUSED;

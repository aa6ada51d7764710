/* SPDX-License-Identifier: Apache-2.0 */
/* How root file systems of sandboxes are mounted here: found out by doing it, once at start, on the pool's own file
 * system. */
#pragma once

#include "base/err.h"
#include "kernel/tree/overlay.h"

/*
 * pool_dir: as seen from where we are. state_dir: for people. What a crash leaves of it lies where pool_reset() looks.
 * COVE_OVERLAY=detached or =attached takes that mode or none; it is for tests.
 */
int rootfs_choose(const char *pool_dir, const char *state_dir, enum overlay_mode *ret_mode,
                  struct err *err) WARN_UNUSED;

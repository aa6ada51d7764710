/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole trees of files, for the children that agent/job.h starts. Nothing here follows a symbolic link, and trees may
 * be deeper than a path can be long. What changes meanwhile is taken as it is found.
 */
#pragma once

#include "agent/failure.h"

/* Removes path and all below it; missing is success. */
int tree_remove(const char *path, struct failure *f);

/* Copies with owners, modes, times and extended attributes; `to` must not exist. What was copied is removed again on
 * failure. */
int tree_copy(const char *from, const char *to, struct failure *f) WARN_UNUSED;

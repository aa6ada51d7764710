/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock: what the calling process and its children may still write. Reading and executing are not handled: mounts
 * decide these. */
#pragma once

#include "base/def.h"

/* A rule set that refuses every change of a file system. -EOPNOTSUPP: the kernel has no Landlock, or it is switched
 * off. */
int landlock_begin(int *ret_ruleset) WARN_UNUSED;

/* Allows changes of this file, or below this directory. */
int landlock_allow(int ruleset, const char *path) WARN_UNUSED;

bool landlock_keeps_signals(void); /* ABI 6 */

/* In force from here on, and no abstract unix socket or signal beyond it where the kernel can (ABI 6). Needs
 * no_new_privs. */
int landlock_enforce(int ruleset) WARN_UNUSED;

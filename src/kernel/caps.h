/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities of the calling thread. */
#pragma once

#include "base/def.h"

/* Effective = permitted. */
int caps_raise_effective(void) WARN_UNUSED;

/*
 * Bounds all that this process can ever have in its user namespace to what package managers, sudo and build tools need,
 * and empties the inheritable and ambient sets. The permitted set shrinks with the next execve().
 */
int caps_bound_sandbox(void) WARN_UNUSED;

/*
 * Keeps of all capabilities only these (bits 1 << CAP_...), while another user becomes the owner of the process, and
 * nothing can be gained any more: the bounding, inheritable and ambient sets are emptied. Groups are the caller's
 * affair.
 */
int caps_keep_only(uint64_t keep, uid_t uid) WARN_UNUSED;

/* Root, but of all that root may only this is left, also behind an execve(): it reads whatever it finds. */
int caps_bound_readers(void) WARN_UNUSED;

/* Gives up every capability for good: empty sets, empty bounding set. */
int caps_drop_all(void) WARN_UNUSED;

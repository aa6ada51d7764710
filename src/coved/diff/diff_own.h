/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are in a sandbox because Cove puts them there whenever it makes one (tier/container.c): /etc/hostname, /etc/hosts, /etc/resolv.conf. They are no
 * change of the sandbox's as long as they are what Cove wrote: the same bytes, root's, 0644.
 */
#pragma once

#include "base/str.h"
#include "coved/diff/diff_stack.h"

/*
 * path: relative to the root. box: what the living box is called whose files these are. NULL, for files that outlived their box: any name that one could have
 * had will do, so a change from one such name to another is not seen.
 */
bool diff_is_own(struct str path, const struct found *f, const char *box);

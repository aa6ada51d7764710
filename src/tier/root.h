/* SPDX-License-Identifier: Apache-2.0 */
/* The root file system of a box: an overlay of layers and its own files, seen through its range of ids. For tiers whose
 * guests see the host's files. */
#pragma once

#include "kernel/tree/overlay.h"
#include "tier/tier.h"

uid_t root_base(const struct tier_host *host, const struct box *box); /* the host's id of its root */
void root_name(struct box *box);                                      /* a new one, never used before */

extern const char root_resolver[]; /* its /etc/resolv.conf, where its network is captured */

/*
 * Makes its files in the pool, and *ret_fd, a detached mount. box->userns_fd maps its ids. ret_parts: of
 * overlay_mount().
 */
int root_mount(const struct tier_host *host, struct box *box, const struct tier_dress *how, int *ret_fd,
               struct overlay_parts *ret_parts, struct err *err) WARN_UNUSED;

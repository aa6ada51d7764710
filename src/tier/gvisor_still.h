/* SPDX-License-Identifier: Apache-2.0 */
/* How a box with a sentry stands still and goes on: see gvisor_still.c, and `freeze` of struct tier. */
#pragma once

#include "tier/tier.h"

int gvisor_freeze(const struct tier_host *host, struct box *box, bool frozen) WARN_UNUSED;

/* Whether descriptors can be had of this process, a child. Without that, what runs on systrap must not be frozen. */
bool gvisor_can_freeze(pid_t pid);

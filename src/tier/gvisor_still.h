/* SPDX-License-Identifier: Apache-2.0 */
/* How a box on the platform systrap stands still and goes on; one on ptrace does so as a container: tier/group.h. */
#pragma once

#include "tier/tier.h"

int gvisor_still_make(const struct tier_host *host, struct box *box) WARN_UNUSED; /* it is to be on systrap */
int gvisor_freeze(const struct tier_host *host, struct box *box, bool frozen) WARN_UNUSED;
int gvisor_is_frozen(const struct tier_host *host, struct box *box) WARN_UNUSED;

/* Whether it can be seen what another process waits for. Without that, nothing is frozen safely on systrap. */
bool gvisor_can_freeze(void);

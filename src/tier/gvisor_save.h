/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of gVisor's boxes: runsc is run once more, in the namespaces of the box, and asks the sentry. See struct
 * tier. */
#pragma once

#include "tier/tier.h"

int gvisor_checkpoint(const struct tier_host *host, const struct box *box,
                      const struct tier_saving *saving) WARN_UNUSED;
int gvisor_go_on(const struct tier_host *host, const struct box *box) WARN_UNUSED;

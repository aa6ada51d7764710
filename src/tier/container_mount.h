/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "tier/tier.h"

int container_mount(const struct tier_host *host, const struct tier_mount *m) WARN_UNUSED; /* of the table */

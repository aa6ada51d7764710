/* SPDX-License-Identifier: Apache-2.0 */
/* By itself, so that tests can put another table in its place (tests/faults/tiers.c). */
#include "tier/tier.h"

const struct tier *const tiers[] = {&tier_process, &tier_container, &tier_gvisor, &tier_microvm, NULL};

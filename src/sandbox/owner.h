/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant with limited disk really has there, by coved's count (wire/supervisor.h, struct sup_owner): with what
 * snapshots and clones still have of sandboxes and volumes that are gone.
 */
#pragma once

#include "sandbox/core.h"

uint64_t owner_of(struct core *core, uint64_t tenant);               /* 0: its disk isn't limited */
void owner_take(struct core *core, uint64_t tenant, const char *id); /* a sandbox that was nobody's is its, too */
void owner_tell(struct core *core, uint64_t tenant);                 /* its limit may have changed */
void owners_tell(struct core *core);                                 /* at the start: all, with what they have */

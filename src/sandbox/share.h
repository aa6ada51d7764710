/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept for all tenants, up to a number: whose has to go. */
#pragma once

#include "base/list.h"

/*
 * The first of the tenant that has most of them: who has less than others loses nothing by what they add. NULL: there
 * are none. Walks through the list.
 */
struct list *share_first(struct list *all, uint64_t (*tenant_of)(const struct list *node));

/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept for all tenants, up to a number: whose has to go. */
#pragma once

#include "base/list.h"

typedef uint64_t (*share_fn)(const struct list *node);

/*
 * The first of the tenant that has most of them, or where one counts for more than another most of what size_of says:
 * who has less than others loses nothing by what they add. NULL: there are none. Walks through the list.
 */
struct list *share_first(struct list *all, share_fn tenant_of, share_fn size_of);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control group of a box, shared by the tiers whose processes live in one. Each function fits into the table
 * (tier/tier.h) as it is.
 */
#pragma once

#include "kernel/cgroup/cgroup.h"
#include "tier/tier.h"

int group_make(const struct tier_host *host, struct box *box) WARN_UNUSED;   /* named after the slot */
int group_remove(const struct tier_host *host, struct box *box) WARN_UNUSED; /* -EBUSY; none is success */
struct cgroup_limits group_limits(const struct tier_limits *limits);
int group_limit(const struct tier_host *host, struct box *box, const struct tier_limits *limits) WARN_UNUSED;

int group_freeze(const struct tier_host *host, struct box *box, bool frozen) WARN_UNUSED;
int group_is_frozen(const struct tier_host *host, struct box *box) WARN_UNUSED;
int group_yield(const struct tier_host *host, struct box *box, bool first) WARN_UNUSED;
int group_reclaim(const struct tier_host *host, struct box *box) WARN_UNUSED;
uint32_t group_oom_kills(const struct tier_host *host, struct box *box);

/* With the size of its files. ret_raw: the kernel's own figures. */
int group_usage(const struct tier_host *host, struct box *box, struct tier_usage *ret_usage,
                struct cgroup_usage *ret_raw) WARN_UNUSED;
/* The size of its files, if it isn't limited to that already. */
int group_limit_disk(const struct tier_host *host, struct box *box, uint64_t bytes, struct err *err) WARN_UNUSED;

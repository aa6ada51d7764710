/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/group.h"
#include "base/log.h"
#include "kernel/pool/pool.h"

int group_make(const struct tier_host *host, struct box *box)
{
    (void)snprintf(box->group, sizeof(box->group), "%u", box->slot);
    int r = cgroup_make(host->cgroups, box->group);
    box->has_group = r == 0;
    return r;
}

int group_remove(const struct tier_host *host, struct box *box)
{
    int r = box->has_group ? cgroup_remove(host->cgroups, box->group) : 0;
    box->has_group = r == -EBUSY;
    return r == -EBUSY ? r : 0;
}

struct cgroup_limits group_limits(const struct tier_limits *l)
{
    return (struct cgroup_limits){.memory_bytes = l->memory_bytes, .cpu_milli = l->cpu_milli, .pids = l->pids};
}

int group_limit(const struct tier_host *host, struct box *box, const struct tier_limits *limits)
{
    const struct cgroup_limits l = group_limits(limits);
    return cgroup_limit(host->cgroups, box->group, &l);
}

int group_freeze(const struct tier_host *host, struct box *box, bool frozen)
{
    return cgroup_freeze(host->cgroups, box->group, frozen);
}

int group_is_frozen(const struct tier_host *host, struct box *box)
{
    return cgroup_is_frozen(host->cgroups, box->group);
}

int group_yield(const struct tier_host *host, struct box *box, bool first)
{
    return cgroup_yield_memory(host->cgroups, box->group, first);
}

int group_reclaim(const struct tier_host *host, struct box *box)
{
    return cgroup_reclaim(host->cgroups, box->group);
}

uint32_t group_oom_kills(const struct tier_host *host, struct box *box)
{
    return cgroup_oom_kills(host->cgroups, box->group);
}

int group_usage(const struct tier_host *host, struct box *box, struct tier_usage *ret_usage,
                struct cgroup_usage *ret_raw)
{
    struct cgroup_usage u = {0};
    int r = cgroup_usage(host->cgroups, box->group, &u);
    if (r < 0)
        return r;
    *ret_usage = (struct tier_usage){.cpu_usec = u.cpu_usec,
                                     .memory_bytes = u.memory_bytes,
                                     .cache_bytes = u.cache_bytes,
                                     .socket_bytes = u.socket_bytes,
                                     .pids = u.pids,
                                     .pids_refused = u.pids_refused,
                                     .oom_kills = u.oom_kills};
    r = pool_features(host->pool)->limits ? pool_box_usage(host->pool, box->name, &ret_usage->disk_bytes) : 0;
    if (r < 0 && r != -ENODATA)
        log_warn("read how much box %s has written: %s", box->name, strerror(-r));
    *ret_raw = u;
    return 0;
}

int group_limit_disk(const struct tier_host *host, struct box *box, uint64_t bytes, struct err *err)
{
    if (bytes == box->disk_bytes || !pool_features(host->pool)->limits)
        return 0;
    int r = pool_box_limit(host->pool, box->name, bytes);
    if (r == -ENODATA)
        return 0; /* resumed from files of a time without limits */
    if (r < 0)
        return err_errno(err, r, "limit the disk space");
    box->disk_bytes = bytes;
    return 0;
}

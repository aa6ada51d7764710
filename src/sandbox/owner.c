/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/owner.h"
#include "base/fd.h"
#include "base/log.h"
#include "sandbox/object.h"
#include "sandbox/supervisor.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/volumes.h"

/* Of the limit: sandboxes and volumes may have as much as that, and what else there is of them as much again. */
enum { OWNER_FACTOR = 2 };

uint64_t owner_of(struct core *core, uint64_t tenant)
{
    const struct quota_user *quota = tenant_quota(core, tenant);
    return quota && quota->limits[QUOTA_DISK] ? tenant + 1 : 0;
}

static void owner_told(void *ctx UNUSED, const union sup_message *answer, int fd, const struct err *err)
{
    (void)fd_close(fd);
    if (!answer && err->code != ERR_NOT_FOUND)
        log_warn("limit a tenant's disk space: %s", err->msg);
}

static void owner_ask(struct core *core, uint64_t tenant, const char *what, uint64_t limit_bytes)
{
    union sup_message m = {.owner = {.head = {.type = SUP_OWNER}, .owner = tenant + 1, .limit_bytes = limit_bytes}};
    struct err err;
    (void)snprintf(m.owner.what, sizeof(m.owner.what), "%s", what);
    if (supervisor_call(core->supervisor, &m, owner_told, NULL, &err) < 0)
        owner_told(NULL, NULL, -1, &err);
}

static bool owner_ask_volume(void *ctx, const struct volume *v)
{
    owner_ask(ctx, v->tenant, v->id, 0);
    return true;
}

void owner_take(struct core *core, uint64_t tenant, const char *id)
{
    if (owner_of(core, tenant))
        owner_ask(core, tenant, id, 0);
}

void owner_tell(struct core *core, uint64_t tenant)
{
    const struct quota_user *quota = tenant_quota(core, tenant);
    uint64_t limit = quota ? quota->limits[QUOTA_DISK] : 0;
    owner_ask(core, tenant, "", limit > UINT64_MAX / OWNER_FACTOR ? 0 : limit * OWNER_FACTOR);
    if (!limit)
        return;
    MAP_FOREACH (const struct sandbox, sb, &core->by_id)
        if (sb->info.tenant == tenant && !sandbox_state_is_over(sb->info.state))
            owner_ask(core, tenant, sb->info.id, 0);
    volume_each(core, tenant, owner_ask_volume, core);
}

static void owner_tell_one(void *ctx, const struct tenant_info *info)
{
    if (info->quota->limits[QUOTA_DISK])
        owner_tell(ctx, info->number);
}

void owners_tell(struct core *core)
{
    tenant_each(core, owner_tell_one, core);
}

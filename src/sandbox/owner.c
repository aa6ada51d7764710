/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/owner.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/units.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/supervisor.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/volumes.h"

enum {
    OWNER_FACTOR =
        2, /* of the limit: sandboxes and volumes may have it, and what else there is of them as much again */
    OWNER_LOOK_MS = 5000,
    OWNER_NEAR_MS = 1000, /* less than a tenth is left */
    OWNER_AGAIN_MS = 1000,
    OWNER_DOUBLED_MOST = 8, /* four minutes */
};

/* A question to coved. */
struct owner_asked {
    struct core *core;
    uint64_t tenant;
    bool is_whole; /* the owner, and not one thing that it has */
    uint64_t used_bytes, most_bytes;
};

uint64_t owner_of(struct core *core, uint64_t tenant)
{
    const struct quota_user *quota = tenant_quota(core, tenant);
    return quota && quota->limits[QUOTA_DISK] ? tenant + 1 : 0;
}

static void owner_look(struct core *core, uint64_t tenant);

static void owner_on_alarm(struct loop_alarm *alarm)
{
    const struct owner *o = container_of(alarm, struct owner, alarm);
    if (o->failures)
        owner_tell(o->core, o->tenant); /* nothing of it is anybody's yet */
    else
        owner_look(o->core, o->tenant);
}

static void owner_ask_in(struct owner *o, usec_t ms)
{
    loop_alarm_set(o->core->loop, &o->alarm, clock_mono() + ms * USEC_PER_MS, owner_on_alarm);
}

/* As what a single sandbox has: it is full a little before the kernel refuses, and again only after there was room. */
static void owner_judge(struct owner *o)
{
    const uint64_t most = o->most_bytes, used = o->used_bytes;
    if (used < most - most / 10) {
        o->is_full = false;
    } else if (!o->is_full && used >= most - MIN(most / 50, (uint64_t)16 << 20)) {
        o->is_full = true;
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_SOME("tenant", tenant_name(o->core, o->tenant)),
                                                         DATA_U64("used_bytes", used), DATA_U64("limit_bytes", most));
        action_note_limited(o->core, SERVICE_LOG_ID, NULL, 0, EVENT_LIMIT_TENANT, event_data_end(&d));
    }
}

static void owner_failed(struct owner *o, const struct err *err)
{
    const unsigned doubled = MIN(o->failures, (unsigned)OWNER_DOUBLED_MOST);
    if (!o->failures++)
        log_warn("limit the disk space of tenant '%s': %s", tenant_name(o->core, o->tenant), err->msg);
    o->why = *err;
    owner_ask_in(o, (usec_t)OWNER_AGAIN_MS << doubled);
}

static void owner_is_told(struct owner *o, const struct owner_asked *a)
{
    if (o->failures)
        log_info("the disk space of tenant '%s' is limited", tenant_name(o->core, o->tenant));
    o->failures = 0;
    o->used_bytes = a->used_bytes;
    o->most_bytes = a->most_bytes;
    if (!o->most_bytes) { /* the pool doesn't count, or there is no limit any more */
        o->is_full = false;
        return;
    }
    owner_judge(o);
    owner_ask_in(o, o->used_bytes < o->most_bytes - o->most_bytes / 10 ? OWNER_LOOK_MS : OWNER_NEAR_MS);
}

static void owner_on_answer(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct owner_asked *a = ctx;
    struct owner *o = a->core->closing ? NULL : tenant_owner(a->core, a->tenant);
    if (o && a->is_whole && answer)
        owner_is_told(o, a);
    else if (o && a->is_whole)
        owner_failed(o, err);
    else if (o && !answer && err->code != ERR_NOT_FOUND)
        log_warn("count what tenant '%s' has on disk: %s", tenant_name(a->core, a->tenant), err->msg);
    mem_free(a);
}

static void owner_on_figures(void *ctx, const union sup_message *item)
{
    struct owner_asked *a = ctx;
    if (item->head.type == SUP_VOLUME) {
        a->used_bytes = item->volume.used_bytes;
        a->most_bytes = item->volume.limit_bytes;
    }
}

static void owner_ask(struct core *core, uint64_t tenant, const char *what, uint64_t limit_bytes)
{
    union sup_message m = {.owner = {.head = {.type = SUP_OWNER}, .owner = tenant + 1, .limit_bytes = limit_bytes}};
    struct owner_asked *a = mem_new(struct owner_asked);
    struct err err;
    *a = (struct owner_asked){.core = core, .tenant = tenant, .is_whole = !what[0]};
    (void)snprintf(m.owner.what, sizeof(m.owner.what), "%s", what);
    if (supervisor_call_with(core->supervisor, &m, -1, owner_on_figures, owner_on_answer, a, &err) < 0)
        owner_on_answer(a, NULL, &err);
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

static void owner_look(struct core *core, uint64_t tenant)
{
    const struct quota_user *quota = tenant_quota(core, tenant);
    uint64_t limit = quota ? quota->limits[QUOTA_DISK] : 0;
    owner_ask(core, tenant, "", limit > UINT64_MAX / OWNER_FACTOR ? 0 : limit * OWNER_FACTOR);
}

void owner_tell(struct core *core, uint64_t tenant)
{
    owner_look(core, tenant);
    if (!owner_of(core, tenant))
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

int owner_check(struct core *core, uint64_t tenant, struct err *err)
{
    const struct owner *o = owner_of(core, tenant) ? tenant_owner(core, tenant) : NULL;
    char used[UNIT_TEXT_MAX], most[UNIT_TEXT_MAX];
    if (o && o->failures)
        return err_set(err, ERR_UNAVAILABLE, "your tenant's disk is limited, which can't be put in force now: %s",
                       o->why.msg);
    if (!o || !o->is_full)
        return 0;
    unit_format_size(o->used_bytes, used);
    unit_format_size(o->most_bytes, most);
    (void)err_set(err, ERR_RESOURCE_EXHAUSTED,
                  "your tenant's sandboxes, volumes, snapshots and templates have %s on disk, and may have %s", used,
                  most);
    return err_because(err, ERR_POOL_FULL);
}

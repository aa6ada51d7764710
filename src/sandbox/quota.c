/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/quota.h"
#include "config/units.h"
#include "sandbox/object.h"
#include "sandbox/owner.h"
#include "sandbox/tenant.h"
#include "template/builds.h"

enum {
    MEMORY_MAX = 512 << 20,
    TEMPLATES_BYTES_MAX = 256 << 20,
    CONNECTIONS_MAX = 16384 /* that the server has (http/server.h) */
};

const char *const quota_names[QUOTA_MAX] = {
    [QUOTA_SANDBOXES] = "sandboxes", [QUOTA_MEMORY] = "memory_bytes",     [QUOTA_CPU] = "cpu_milli",
    [QUOTA_DISK] = "disk_bytes",     [QUOTA_CONNECTIONS] = "connections", [QUOTA_CREATES] = "creates_per_minute",
    [QUOTA_TEMPLATES] = "templates", [QUOTA_CHECKPOINTS] = "checkpoints",
};

static const char *const quota_words[QUOTA_MAX] = {
    [QUOTA_SANDBOXES] = " sandboxes",
    [QUOTA_MEMORY] = " of memory",
    [QUOTA_CPU] = " CPUs",
    [QUOTA_DISK] = " of disk",
    [QUOTA_CONNECTIONS] = " open connections",
    [QUOTA_CREATES] = " new sandboxes a minute",
    [QUOTA_TEMPLATES] = " templates and snapshots",
    [QUOTA_CHECKPOINTS] = " checkpoints",
};

static void quota_format(enum quota what, uint64_t amount, char ret_text[static UNIT_TEXT_MAX])
{
    if (what == QUOTA_MEMORY || what == QUOTA_DISK)
        unit_format_size(amount, ret_text);
    else if (what == QUOTA_CPU)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%g", (double)amount / 1000);
    else
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%llu", (unsigned long long)amount);
}

static int quota_refuse(enum quota what, uint64_t limit, uint64_t used, uint64_t amount, struct err *err)
{
    char most[UNIT_TEXT_MAX], other[UNIT_TEXT_MAX];
    quota_format(what, limit, most);
    quota_format(what, amount > limit ? amount : used, other);
    if (amount > limit)
        return err_set(err, ERR_PERMISSION_DENIED, "your tenant's limit is %s%s, less than the %s asked for", most,
                       quota_words[what], other);
    return err_set(err, ERR_RESOURCE_EXHAUSTED, "your tenant's limit is %s%s, and %s %s in use", most,
                   quota_words[what], other, used == 1 ? "is" : "are");
}

static void charge_add(struct charge *charge, struct quota_user *user, struct core *core, uint64_t tenant,
                       const uint64_t amounts[static QUOTA_CHARGED])
{
    *charge = (struct charge){.core = core, .tenant = tenant};
    core->n_connections += amounts[QUOTA_CONNECTIONS];
    for (size_t i = 0; i < QUOTA_CHARGED; i++) {
        charge->amounts[i] = amounts[i];
        user->used[i] += amounts[i];
    }
}

static struct quota_user *quota_user_of(struct core *core, uint64_t tenant, struct err *err)
{
    struct quota_user *user = tenant_quota(core, tenant);
    if (!user)
        (void)err_set(err, ERR_UNAUTHENTICATED, "the tenant was removed");
    return user;
}

int charge_take(struct charge *charge, struct core *core, uint64_t tenant, const uint64_t amounts[static QUOTA_CHARGED],
                struct err *err)
{
    struct quota_user *user = quota_user_of(core, tenant, err);
    if (!user)
        return -1;
    for (size_t i = 0; i < QUOTA_CHARGED; i++) {
        uint64_t limit = user->limits[i], used = user->used[i];
        if (amounts[i] && limit && (used >= limit || amounts[i] > limit - used))
            return quota_refuse((enum quota)i, limit, used, amounts[i], err);
    }
    if (amounts[QUOTA_CONNECTIONS] &&
        !quota_has_room(core, CONNECTIONS_MAX, core->n_connections, user->used[QUOTA_CONNECTIONS]))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "your tenant has %llu open connections, and others want some, too",
                       (unsigned long long)user->used[QUOTA_CONNECTIONS]);
    charge_add(charge, user, core, tenant, amounts);
    return 0;
}

/* Of what may grow; 0: without an end, which a tenant whose disk is limited can't have. */
static int charge_disk(struct charge *charge, struct core *core, uint64_t tenant,
                       const uint64_t amounts[static QUOTA_CHARGED], struct err *err)
{
    const struct quota_user *user = quota_user_of(core, tenant, err);
    if (!user)
        return -1;
    if (user->limits[QUOTA_DISK] && !amounts[QUOTA_DISK])
        return err_set(
            err, ERR_PERMISSION_DENIED,
            "your tenant's disk is limited: set a size (of a sandbox: --disk or 'defaults.disk' in the configuration; of a volume: --size)");
    if (owner_check(core, tenant, err) < 0)
        return -1;
    return charge_take(charge, core, tenant, amounts, err);
}

int charge_volume(struct charge *charge, struct core *core, uint64_t tenant, uint64_t limit_bytes, struct err *err)
{
    return charge_disk(charge, core, tenant, (const uint64_t[QUOTA_CHARGED]){[QUOTA_DISK] = limit_bytes}, err);
}

int charge_sandbox(struct charge *charge, struct core *core, uint64_t tenant, uint64_t memory_bytes, uint32_t cpu_milli,
                   uint64_t disk_bytes, struct err *err)
{
    const uint64_t amounts[QUOTA_CHARGED] = {
        [QUOTA_SANDBOXES] = 1, [QUOTA_MEMORY] = memory_bytes, [QUOTA_CPU] = cpu_milli, [QUOTA_DISK] = disk_bytes};
    struct quota_user *user = quota_user_of(core, tenant, err);
    if (!user)
        return -1;
    uint64_t rate = user->limits[QUOTA_CREATES];
    usec_t now = clock_mono(), step = rate ? 60 * USEC_PER_SEC / rate : 0, due = MAX(user->creates_at, now);
    if (rate && due + step > now + 60 * USEC_PER_SEC)
        return quota_refuse(QUOTA_CREATES, rate, rate, 1, err);
    if (charge_disk(charge, core, tenant, amounts, err) < 0)
        return -1;
    user->creates_at = due + step;
    return 0;
}

void charge_take_over(struct charge *charge, struct core *core, uint64_t tenant,
                      const uint64_t amounts[static QUOTA_CHARGED])
{
    struct quota_user *user = tenant_quota(core, tenant);
    if (user)
        charge_add(charge, user, core, tenant, amounts);
}

int charge_memory(struct charge *charge, size_t bytes, struct err *err)
{
    struct quota_user *user = charge->core ? quota_user_of(charge->core, charge->tenant, err) : NULL;
    if (!user)
        return charge->core ? -1 : 0;
    if (!quota_is_share(MEMORY_MAX, charge->core->charged_bytes, user->bytes, bytes))
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "your tenant's requests and answers take %zu MiB: wait until some of them have ended",
                       user->bytes >> 20);
    charge->bytes += bytes;
    user->bytes += bytes;
    charge->core->charged_bytes += bytes;
    return 0;
}

void charge_return(struct charge *charge, size_t bytes)
{
    struct quota_user *user = charge->core ? tenant_quota(charge->core, charge->tenant) : NULL;
    bytes = MIN(bytes, charge->bytes); /* some of it may be from before there was a tenant */
    charge->bytes -= bytes;
    if (charge->core)
        charge->core->charged_bytes -= bytes;
    if (user)
        user->bytes -= bytes;
}

bool charge_queue(void *charge, size_t before, size_t now)
{
    struct err ignored;
    if (now > before)
        return charge_memory(charge, now - before, &ignored) == 0;
    charge_return(charge, before - now);
    return true;
}

void charge_release(struct charge *charge)
{
    struct quota_user *user = charge->core ? tenant_quota(charge->core, charge->tenant) : NULL;
    if (charge->core) {
        charge->core->charged_bytes -= charge->bytes;
        charge->core->n_connections -= charge->amounts[QUOTA_CONNECTIONS];
    }
    if (user)
        user->bytes -= charge->bytes;
    for (size_t i = 0; user && i < QUOTA_CHARGED; i++) {
        assert(user->used[i] >= charge->amounts[i]);
        user->used[i] -= charge->amounts[i];
    }
    charge->core = NULL;
    charge->bytes = 0;
}

static int quota_check_one(struct core *core, uint64_t tenant, enum quota what, size_t n, struct err *err)
{
    const struct quota_user *user = tenant_quota(core, tenant);
    uint64_t limit = user ? user->limits[what] : 0;
    return limit && n >= limit ? quota_refuse(what, limit, n, 1, err) : 0;
}

bool quota_has_room(const struct core *core, size_t max, size_t all, size_t own)
{
    return tenant_has_others(core) ? quota_is_share(max, all, own, 1) : all < max;
}

int quota_check_template(struct core *core, uint64_t tenant, size_t n, struct err *err)
{
    size_t others = template_count(core->templates, TENANT_ANY) - template_count(core->templates, tenant);
    if (!quota_has_room(core, TEMPLATE_BUILT_MAX, others + n, n))
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "your tenant has %zu templates and snapshots, and others want some, too: delete some", n);
    const size_t all = template_bytes(core->templates, TENANT_ANY), own = template_bytes(core->templates, tenant);
    if (!quota_has_room(core, TEMPLATES_BYTES_MAX, all, own))
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "the variables and commands of templates and snapshots, yours and others', take too much memory "
                       "(%zu MiB are yours): delete some",
                       own >> 20);
    return quota_check_one(core, tenant, QUOTA_TEMPLATES, n, err);
}

int quota_check_checkpoint(struct core *core, uint64_t tenant, size_t n, struct err *err)
{
    return quota_check_one(core, tenant, QUOTA_CHECKPOINTS, n, err);
}

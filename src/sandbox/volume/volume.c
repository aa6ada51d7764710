/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. A volume has a row before coved makes its directory, and until coved has dropped it: what a worker that dies
 *     leaves behind is a row without a volume, which the next one finds out and forgets. A directory without a row is
 *     left alone: it may be somebody's data. One that was made, says its log, and is not there is *away*: the pool is
 *     another one, which may change again. Its row stays, and it can be dropped, but not used.
 *  2. It is not listed while it is made or dropped; its name is taken all that time.
 *  3. Mounted is it in every sandbox that has it among its mounts and is not over, paused ones too: they want it back.
 *     A volume that is mounted is not dropped. coved waits for sandboxes that have just ended to let go of it, which we
 *     wait for a few seconds.
 *  4. The sandbox through which files are read (opener.c) does not count as one.
 */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/owner.h"
#include "sandbox/record/record.h"
#include "sandbox/volume/mounts.h"
#include "sandbox/volume/volume_internal.h"

#include <stdlib.h>

enum { TOKEN_LEN = 40, VOLUME_RETRY_MS = 50, RETRIES_MAX = 100, VOLUMES_MAX = 65536, VOLUME_USERS_MAX = 4 };

/* ---- the table ---- */

static bool name_is(struct str name)
{
    return name.n && name.n <= VOLUME_NAME_MAX && str_is_of(name, "A-Za-z0-9._-");
}

static char *name_key(uint64_t tenant, struct str name)
{
    return mem_printf("%llu/%.*s", (unsigned long long)tenant, STR_ARG(name));
}

static struct vol *vol_named(const struct volumes *all, uint64_t tenant, struct str name)
{
    AUTO_FREE char *key = name_key(tenant, name);
    return map_get(&all->by_name, str_of(key));
}

static struct vol *volume_add(struct volumes *all, uint64_t tenant, const char *id, struct str name, const char *token,
                              uint64_t limit, usec_t created)
{
    struct vol *v = mem_new(struct vol);
    v->core = all->core;
    AUTO_FREE char *key = name_key(tenant, name);
    v->v = (struct volume){.tenant = tenant,
                           .id = mem_strdup(id),
                           .name = mem_strndup(name.p, name.n),
                           .token = mem_strdup(token),
                           .limit_bytes = limit,
                           .created = created};
    opener_init(v);
    (void)map_put(&all->by_id, str_of(v->v.id), v);
    (void)map_put(&all->by_name, str_of(key), v);
    return v;
}

static void vol_free(struct vol *v)
{
    struct volumes *all = v->core->volumes;
    AUTO_FREE char *key = name_key(v->v.tenant, str_of(v->v.name));
    opener_fini(v);
    charge_release(&v->charge);
    (void)map_del(&all->by_id, str_of(v->v.id));
    (void)map_del(&all->by_name, str_of(key));
    MEM_FREE(v->v.id, v->v.name, v->v.token, v);
}

static bool mounts(const struct sandbox *sb, const struct vol *v)
{
    if (sb->info.tenant != v->v.tenant || sb->info.hidden || sandbox_state_is_over(sb->info.state))
        return false;
    for (size_t i = 0; i < sb->info.n_mounts; i++)
        if (str_eqc(sb->info.mounts[i].name, v->v.name) || str_eqc(sb->info.mounts[i].name, v->v.id))
            return true;
    return false;
}

static void count_mounts(struct vol *v)
{
    v->v.mounted = 0;
    MAP_FOREACH (struct sandbox, sb, &v->core->by_id)
        v->v.mounted += mounts(sb, v);
}

static struct vol *volume_look_up(const struct volumes *all, uint64_t view, struct str ref)
{
    struct vol *v = map_get(&all->by_id, ref);
    return v && view_has(view, v->v.tenant) ? v : vol_named(all, view_home(view), ref);
}

struct vol *vol_next(struct core *core, size_t *it)
{
    return map_next(&core->volumes->by_id, it);
}

struct vol *vol_find(struct core *core, uint64_t view, struct str ref)
{
    struct vol *v = volume_look_up(core->volumes, view, ref);
    return v && !v->is_busy ? v : NULL;
}

int vol_check_there(const struct vol *v, struct err *err)
{
    if (!v->is_away)
        return 0;
    return err_set(err, ERR_FAILED_PRECONDITION,
                   "volume %s is not in this pool: it was made in another one, or taken away from it", v->v.name);
}

static void count_mounts_of(const struct volumes *all, const struct sandbox *sb)
{
    struct vol *found[VOLUME_MOUNTS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < MIN(sb->info.n_mounts, ARRAY_SIZE(found)); i++) {
        struct vol *v = volume_look_up(all, sb->info.tenant, sb->info.mounts[i].name);
        bool is_new = v != NULL;
        for (size_t k = 0; k < n; k++)
            is_new &= found[k] != v;
        if (is_new)
            found[n++] = v;
    }
    while (n)
        found[--n]->v.mounted++;
}

/* Of all at once: each for itself would walk all sandboxes. */
static void count_all_mounts(struct volumes *all)
{
    MAP_FOREACH (struct vol, v, &all->by_id)
        v->v.mounted = 0;
    MAP_FOREACH (struct sandbox, sb, &all->core->by_id)
        if (!sb->info.hidden && !sandbox_state_is_over(sb->info.state))
            count_mounts_of(all, sb);
}

const struct volume *volume_find(struct core *core, uint64_t view, struct str ref)
{
    struct vol *v = vol_find(core, view, ref);
    if (!v)
        return NULL;
    count_mounts(v);
    return &v->v;
}

static int volume_by_name(const void *a, const void *b)
{
    return strcmp((*(struct vol *const *)a)->v.name, (*(struct vol *const *)b)->v.name);
}

void volume_each(struct core *core, uint64_t view, bool (*fn)(void *ctx, const struct volume *v), void *ctx)
{
    struct volumes *all = core->volumes;
    struct vol **sorted = mem_array(map_count(&all->by_id) + 1, sizeof(struct vol *));
    size_t n = 0;
    MAP_FOREACH (struct vol, v, &all->by_id)
        if (!v->is_busy && view_has(view, v->v.tenant))
            sorted[n++] = v;
    qsort(sorted, n, sizeof(struct vol *), volume_by_name);
    count_all_mounts(all);
    for (size_t i = 0; i < n && fn(ctx, &sorted[i]->v); i++)
        ;
    mem_free(sorted);
}

bool volume_is_in_pool(const struct volume *v)
{
    return !container_of(v, struct vol, v)->is_away;
}

int vol_unknown(struct str ref, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no volume '%.*s'", STR_ARG_MAX(ref, 64));
}

/* ---- making and dropping ---- */

struct work {
    struct vol *v;
    volume_fn done;
    void *ctx;
    unsigned tries;
    struct loop_alarm retry;
};

static int volume_ask(struct vol *v, enum sup_type type, supervisor_fn fn, struct work *work, struct err *err)
{
    union sup_message m = {.volume_id = {.head = {.type = type}}};
    memcpy(m.volume_id.volume, v->v.id, strlen(v->v.id));
    if (type == SUP_VOLUME_MAKE) {
        m.volume_id.limit_bytes = v->v.limit_bytes;
        m.volume_id.owner = owner_of(v->core, v->v.tenant);
    }
    return supervisor_call(v->core->supervisor, &m, fn, work, err);
}

static int delete_row(struct vol *v, struct err *err)
{
    int r = volume_rows_delete(v->core->config.store, v->v.id, err);
    return r < 0 ? r : keeper_commit(v->core->keeper, err);
}

static void volume_finish(struct work *w, const struct volume *v, const struct err *err)
{
    volume_fn done = w->done;
    void *ctx = w->ctx;
    loop_alarm_clear(w->v->core->loop, &w->retry);
    mem_free(w);
    done(ctx, v, err);
}

static void volume_on_made(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct work *w = ctx;
    struct vol *v = w->v;
    struct err local;
    fault_point("core.volume.made");
    if (answer) {
        v->is_busy = false;
        volume_observe(v, EVENT_VOLUME_CREATED, STR("{}"));
        volume_finish(w, &v->v, NULL);
        return;
    }
    if (!v->core->closing)
        volume_failed(v, "create", err);
    /* Nobody knows whether it was made: the row stays for the next start to find out, and its name is taken until
     * then. */
    bool is_unknown = err->code == ERR_UNAVAILABLE || err->code == ERR_DEADLINE_EXCEEDED;
    bool is_over = !v->core->closing && !is_unknown;
    if (is_over && delete_row(v, &local) < 0)
        core_unrecorded(v->core, &local);
    volume_finish(w, NULL, err);
    if (is_over)
        vol_free(v);
}

int volume_make(struct core *core, const struct actor *actor, struct str name, uint64_t limit_bytes, volume_fn done,
                void *ctx, struct err *err)
{
    struct volumes *all = core->volumes;
    char id[VOLUME_ID_LEN + 1] = "vol-", token[TOKEN_LEN + 1];
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (!name_is(name) || name.p[0] == '-') /* which those from before this was refused may begin with */
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a volume's name must be 1 to %d of [A-Za-z0-9._-], the first "
                       "not -",
                       VOLUME_NAME_MAX);
    uint64_t tenant = actor->who.tenant;
    struct vol *taken = vol_named(all, tenant, name);
    if (taken) {
        (void)err_set(err, ERR_ALREADY_EXISTS, "the volume '%.*s' already exists", STR_ARG(name));
        volume_refused(taken, actor, "create", err);
        return -1;
    }
    size_t own = 0;
    MAP_FOREACH (const struct vol, v, &all->by_id)
        own += v->v.tenant == tenant;
    if (!quota_has_room(core, VOLUMES_MAX, map_count(&all->by_id), own))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %zu volumes, %zu of them your tenant's: delete some",
                       map_count(&all->by_id), own);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("name", name), DATA_U64("limit_bytes", limit_bytes));
    struct str data = event_data_end(&d);
    if (action_allow(core, actor, EVENT_VOLUME_CREATE, data, err) < 0)
        return -1;
    struct charge charge = {0};
    if (charge_volume(&charge, core, tenant, limit_bytes, err) < 0)
        return -1;
    id_token(id + 4, VOLUME_ID_LEN - 4);
    id_token(token, TOKEN_LEN);
    struct vol *v = volume_add(all, tenant, id, name, token, limit_bytes, clock_real());
    v->charge = charge;
    struct work *w = mem_new(struct work);
    *w = (struct work){.v = v, .done = done, .ctx = ctx};
    v->is_busy = true;
    struct store_volume row = {.id = v->v.id,
                               .name = v->v.name,
                               .token = v->v.token,
                               .limit_bytes = limit_bytes,
                               .created_at = v->v.created,
                               .tenant = tenant};
    if (action_record(core, v->v.id, actor, EVENT_VOLUME_CREATE, data, &v->action_seq, err) < 0 ||
        volume_rows_insert(core->config.store, &row, err) < 0 ||
        (tenant != TENANT_DEFAULT && owner_rows_put(core->config.store, v->v.id, tenant, err) < 0) ||
        keeper_commit(core->keeper, err) < 0) {
        vol_free(v);
    } else if (volume_ask(v, SUP_VOLUME_MAKE, volume_on_made, w, err) == 0) {
        fault_point("core.volume.asked");
        keeper_settle(core->keeper);
        log_info("volume %s (%s) was created for %s", v->v.name, v->v.id, actor->name);
        return 0;
    } else {
        struct err local;
        if (delete_row(v, &local) < 0)
            core_unrecorded(core, &local);
        vol_free(v);
    }
    mem_free(w);
    return -1;
}

static void volume_on_closed(void *ctx);

static void volume_on_retry(struct loop_alarm *alarm)
{
    struct work *w = container_of(alarm, struct work, retry);
    w->v->retrying = NULL;
    volume_on_closed(w);
}

static void volume_on_dropped(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct work *w = ctx;
    struct vol *v = w->v;
    struct err local;
    if (v->core->closing) {
        volume_finish(w, NULL, answer ? NULL : err);
        return;
    }
    if (!answer && err->code == ERR_FAILED_PRECONDITION && w->tries++ < RETRIES_MAX) {
        v->retrying = w;
        loop_alarm_set(v->core->loop, &w->retry, clock_mono() + VOLUME_RETRY_MS * USEC_PER_MS, volume_on_retry);
        return;
    }
    if (!answer && err->code != ERR_NOT_FOUND) {
        v->is_busy = false;
        volume_failed(v, "drop", err);
        volume_finish(w, NULL, err);
        return;
    }
    fault_point("core.volume.dropped");
    volume_observe(v, EVENT_VOLUME_DROPPED, STR("{}"));
    bool is_kept = delete_row(v, &local) < 0;
    volume_finish(w, NULL, is_kept ? &local : NULL);
    vol_free(v);
}

/* Nothing of ours has it mounted. */
static void volume_on_closed(void *ctx)
{
    struct work *w = ctx;
    struct vol *v = w->v;
    struct err err;
    if (v->core->closing)
        (void)err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
    else if (volume_ask(v, SUP_VOLUME_DROP, volume_on_dropped, w, &err) == 0)
        return;
    v->is_busy = false;
    volume_finish(w, NULL, &err);
}

static int refuse_users(struct vol *v, struct err *err)
{
    char names[VOLUME_USERS_MAX * (ID_SANDBOX_LEN + 2) + 1] = "";
    size_t n = 0;
    MAP_FOREACH (struct sandbox, sb, &v->core->by_id) {
        if (!mounts(sb, v) || n++ >= VOLUME_USERS_MAX)
            continue;
        size_t at = strlen(names);
        (void)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "", sb->info.id);
    }
    if (!n)
        return 0;
    return err_set(err, ERR_FAILED_PRECONDITION, "volume %s is mounted in %zu sandboxes: %s%s", v->v.name, n, names,
                   n > VOLUME_USERS_MAX ? ", ..." : "");
}

int volume_drop(struct core *core, const struct actor *actor, struct str ref, volume_fn done, void *ctx,
                struct err *err)
{
    struct vol *v = vol_find(core, actor->who.view, ref);
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (!v)
        return vol_unknown(ref, err);
    if (refuse_users(v, err) < 0) {
        volume_refused(v, actor, "drop", err);
        return -1;
    }
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("name", v->v.name));
    /* Stored before coved hears of it: of a volume that is gone the next worker must know that it was dropped. */
    if (action_on(core, v->v.id, actor, EVENT_VOLUME_DROP, event_data_end(&d), &v->action_seq, err) < 0 ||
        keeper_commit(core->keeper, err) < 0)
        return -1;
    struct work *w = mem_new(struct work);
    *w = (struct work){.v = v, .done = done, .ctx = ctx};
    v->is_busy = true;
    log_info("volume %s (%s) was removed for %s", v->v.name, v->v.id, actor->name);
    opener_close(v, volume_on_closed, w);
    return 0;
}

/* ---- at start ---- */

static void volume_load(void *ctx, const struct store_volume *row)
{
    struct volumes *all = ctx;
    if (strlen(row->id) == VOLUME_ID_LEN && name_is(str_of(row->name)))
        charge_take_over(
            &volume_add(all, row->tenant, row->id, str_of(row->name), row->token, row->limit_bytes, row->created_at)
                 ->charge,
            all->core, row->tenant, (const uint64_t[QUOTA_CHARGED]){[QUOTA_DISK] = row->limit_bytes});
    else
        log_warn("the store has a volume with the id '%s': ignored", row->id);
}

static void on_there(void *ctx, const union sup_message *item)
{
    struct volumes *all = ctx;
    if (item->head.type != SUP_VOLUME)
        return;
    struct vol *v = map_get(&all->by_id, str_of(item->volume.volume));
    if (v)
        v->is_there = true;
    else
        log_warn("volume %s is in the pool but not in the store: it is left alone", item->volume.volume);
}

static void on_all_there(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct volumes *all = ctx;
    struct err local;
    if (!answer || all->core->closing) {
        if (!all->core->closing && err->code != ERR_UNIMPLEMENTED)
            log_warn("the volumes of the pool: %s", err->msg);
        return;
    }
    size_t it = 0;
    for (struct vol *v; (v = map_next(&all->by_id, &it));) {
        if (v->is_there || v->is_away || v->is_busy || v->v.created >= all->core->opened_at)
            continue;
        v->is_away = volume_log_says_made(v);
        if (v->is_away) {
            log_error("volume %s (%s) is not in this pool: it can't be used", v->v.name, v->v.id);
            continue;
        }
        log_warn("volume %s (%s) was never completed, or was being removed: it is forgotten", v->v.name, v->v.id);
        volume_observe(v, EVENT_VOLUME_DROPPED, STR("{}")); /* whoever was to say it died */
        if (delete_row(v, &local) < 0)
            core_unrecorded(all->core, &local);
        vol_free(v);
        it = 0;
    }
}

int volumes_load(struct core *core, struct err *err)
{
    return volume_rows_each(core->config.store, volume_load, core->volumes, err);
}

int volumes_check(struct core *core, struct err *err)
{
    union sup_message m = {.head = {.type = SUP_VOLUMES}};
    return map_count(&core->volumes->by_id)
               ? supervisor_call_with(core->supervisor, &m, -1, on_there, on_all_there, core->volumes, err)
               : 0;
}

struct volumes *volumes_new(struct core *core)
{
    struct volumes *all = mem_new(struct volumes);
    all->core = core;
    usages_init(&all->usages, core);
    return all;
}

void volumes_abandon(struct core *core, const struct err *why)
{
    MAP_FOREACH (struct vol, v, &core->volumes->by_id)
        if (v->retrying)
            volume_finish(TAKE_PTR(v->retrying), NULL, why);
    MAP_FOREACH (struct vol, v, &core->volumes->by_id)
        opener_abandon(v, why);
    usages_abandon(&core->volumes->usages, why);
}

void volumes_free(struct volumes *all)
{
    for (struct vol *v; (v = map_any(&all->by_id));)
        vol_free(v);
    usages_fini(&all->usages);
    map_fini(&all->by_id);
    map_fini(&all->by_name);
    mem_free(all);
}

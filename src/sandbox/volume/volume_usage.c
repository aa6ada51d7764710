/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much is in volumes: coved knows, one system call or two for each.
 *
 *  1. Of all there is one round at a time. It asks about SUP_VOLUMES_MAX, waits for the answer, and asks about the
 *     next: coved serves others in between, however many volumes there are and however many clients want to know.
 *  2. Who comes while one is under way is told after the next one, which begins then: figures are never older than the
 *     question.
 *  3. A volume that is made or dropped meanwhile has no figure.
 */
#include "base/mem.h"
#include "sandbox/volume/volume_internal.h"

static int volume_usage_ask(struct core *core, char (*ids)[VOLUME_ID_LEN + 1], size_t n, supervisor_item_fn each,
                            supervisor_fn fn, void *ctx, struct err *err)
{
    union sup_message m;
    static_assert(VOLUME_ID_LEN < sizeof(m.volumes.volumes[0]), "an id has room");
    memset(&m, 0, sizeof(m));
    m.volumes.head.type = SUP_VOLUME_USAGE;
    m.volumes.n = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        memcpy(m.volumes.volumes[i], ids[i], VOLUME_ID_LEN);
    return supervisor_call_with(core->supervisor, &m, -1, each, fn, ctx, err);
}

/* ---- of one ---- */

struct usage {
    char id[1][VOLUME_ID_LEN + 1];
    bool found;
    uint64_t bytes;
    volume_usage_fn done;
    void *ctx;
};

static void volume_usage_on_volume(void *ctx, const union sup_message *item)
{
    struct usage *u = ctx;
    if (item->head.type != SUP_VOLUME || strcmp(item->volume.volume, u->id[0]) != 0)
        return;
    u->found = true;
    u->bytes = item->volume.used_bytes;
}

static void on_answer(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct usage *u = ctx;
    struct err local;
    if (answer && !u->found)
        (void)err_set(&local, ERR_NOT_FOUND, "volume %s is not in the pool", u->id[0]);
    u->done(u->ctx, u->bytes, !answer ? err : u->found ? NULL : &local);
    mem_free(u);
}

int volume_usage(struct core *core, uint64_t view, struct str ref, volume_usage_fn done, void *ctx, struct err *err)
{
    const struct vol *v = vol_find(core, view, ref);
    if (!v)
        return vol_unknown(ref, err);
    if (vol_check_there(v, err) < 0)
        return -1;
    struct usage *u = mem_new(struct usage);
    *u = (struct usage){.done = done, .ctx = ctx};
    memcpy(u->id[0], v->v.id, VOLUME_ID_LEN);
    if (volume_usage_ask(core, u->id, 1, volume_usage_on_volume, on_answer, u, err) == 0)
        return 0;
    mem_free(u);
    return -1;
}

/* ---- of all ---- */

struct asker {
    struct list node;
    volume_usages_fn done;
    void *ctx;
};

static void volume_usage_begin(struct usages *u);

static void volume_usage_tell(struct list *askers, const struct err *err)
{
    struct asker *a;
    while ((a = LIST_FIRST(struct asker, askers, node))) {
        volume_usages_fn done = a->done;
        void *ctx = a->ctx;
        list_remove(&a->node);
        mem_free(a);
        done(ctx, err);
    }
}

static void volume_usage_on_end(struct loop_job *job)
{
    struct usages *u = container_of(job, struct usages, end_job);
    mem_free(TAKE_PTR(u->ids));
    volume_usage_tell(&u->asking, u->err.code
                                      ? &u->err
                                      : NULL); /* who asks again meanwhile finds it under way, and is among the next */
    u->is_under_way = false;
    if (!list_empty(&u->next) && !u->core->closing)
        volume_usage_begin(u);
}

static void on_one(void *ctx, const union sup_message *item)
{
    struct usages *u = ctx;
    struct vol *v = item->head.type == SUP_VOLUME ? vol_find(u->core, TENANT_ANY, str_of(item->volume.volume)) : NULL;
    if (v)
        v->v.used_bytes = item->volume.used_bytes;
}

static void ask_next(struct usages *u);

static void on_some(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct usages *u = ctx;
    if (u->core->closing)
        return; /* all were told */
    if (answer) {
        ask_next(u);
        return;
    }
    u->err = *err;
    loop_later(u->core->loop, &u->end_job);
}

static void ask_next(struct usages *u)
{
    size_t n = MIN(u->n - u->at, (size_t)SUP_VOLUMES_MAX), from = u->at;
    u->at += n;
    if (n == 0 || volume_usage_ask(u->core, u->ids + from, n, on_one, on_some, u, &u->err) < 0)
        loop_later(u->core->loop, &u->end_job);
}

static void volume_usage_begin(struct usages *u)
{
    struct volumes *all = u->core->volumes;
    struct asker *a;
    while ((a = LIST_FIRST(struct asker, &u->next, node))) {
        list_remove(&a->node);
        list_append(&u->asking, &a->node);
    }
    u->is_under_way = true;
    u->err.code = ERR_OK;
    u->n = u->at = 0;
    u->ids = mem_array(map_count(&all->by_id) + 1, sizeof(*u->ids));
    MAP_FOREACH (struct vol, v, &all->by_id) {
        v->v.used_bytes = 0;
        if (!v->is_busy && !v->is_away)
            (void)snprintf(u->ids[u->n++], sizeof(*u->ids), "%s", v->v.id);
    }
    ask_next(u);
}

int volume_usages(struct core *core, volume_usages_fn done, void *ctx, struct err *err)
{
    struct usages *u = &core->volumes->usages;
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    struct asker *a = mem_new(struct asker);
    *a = (struct asker){.done = done, .ctx = ctx};
    list_init(&a->node);
    list_append(&u->next, &a->node);
    if (!u->is_under_way)
        volume_usage_begin(u);
    return 0;
}

void usages_init(struct usages *u, struct core *core)
{
    u->core = core;
    list_init(&u->asking);
    list_init(&u->next);
    loop_job_init(&u->end_job, volume_usage_on_end);
}

void usages_abandon(struct usages *u, const struct err *why)
{
    loop_job_cancel(&u->end_job);
    volume_usage_tell(&u->asking, why);
    volume_usage_tell(&u->next, why);
}

void usages_fini(struct usages *u)
{
    loop_job_cancel(&u->end_job);
    mem_free(TAKE_PTR(u->ids));
}

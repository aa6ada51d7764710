/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/boxes/boxes_internal.h"
#include "kernel/pool/pool.h"

size_t boxes_running(const struct boxes *b)
{
    return b->counts[BOX_RUNNING] + b->counts[BOX_FROZEN];
}

size_t boxes_left(const struct boxes *b)
{
    size_t n = 0;
    for (size_t i = 0; i < BOX_STATES; i++)
        n += b->counts[i];
    return n + b->n_loose + b->n_copies;
}

struct box_entry *boxes_find(struct boxes *b, const char *id, struct err *err)
{
    struct box_entry *e = map_get(&b->by_id, str_of(id));
    if (!e)
        (void)err_set(err, ERR_NOT_FOUND, "sandbox %s is not here", id);
    return e;
}

int boxes_attach(struct boxes *b, const char *id, int *ret_session_fd, struct err *err)
{
    struct box_entry *e = boxes_find(b, id, err);
    if (!e)
        return -1;
    return e->tier->session(&e->box, e->id, e->template_id, ret_session_fd, err);
}

int boxes_usage(struct boxes *b, const char *id, struct sup_used *ret_used, struct err *err)
{
    struct box_entry *e = boxes_find(b, id, err);
    if (!e)
        return -1;
    struct tier_usage u = {0};
    int r = e->tier->usage(b->host, &e->box, clock_real() - MIN(clock_real(), e->started), &u);
    if (r < 0)
        return err_errno(err, r, "read the usage of sandbox %s", id);
    ret_used->disk_bytes = u.disk_bytes;
    ret_used->disk_limit_bytes = pool_features(b->host->pool)->limits ? e->box.disk_bytes : 0;
    ret_used->cpu_usec = u.cpu_usec;
    ret_used->memory_bytes = u.memory_bytes;
    ret_used->cache_bytes = u.cache_bytes;
    ret_used->memory_limit_bytes = e->box.limits.memory_bytes;
    ret_used->pids = u.pids;
    ret_used->pids_limit = e->box.limits.pids;
    ret_used->pids_refused = u.pids_refused;
    ret_used->oom_kills = u.oom_kills;
    return 0;
}

void boxes_each(struct boxes *b, void (*fn)(void *ctx, const char *id, usec_t started, enum sup_life life), void *ctx)
{
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_RUNNING], node) {
        fn(ctx, e->id, e->started, SUP_LIVES);
    }
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_FROZEN], node) {
        fn(ctx, e->id, e->started, SUP_FROZEN);
    }
    size_t it = 0;
    for (const struct kept *k; (k = map_next(&b->kept, &it));)
        if (!k->is_doomed)
            fn(ctx, k->id, 0, k->has_memory ? SUP_ON_DISK : SUP_KEPT);
}

void boxes_each_network(struct boxes *b, void (*fn)(void *ctx, const char *id, const struct netns *net), void *ctx)
{
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_RUNNING], node) {
        fn(ctx, e->id, &e->box.net);
    }
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_FROZEN], node) {
        fn(ctx, e->id, &e->box.net);
    }
}

void boxes_each_standing(struct boxes *b, void (*fn)(void *ctx, const char *layer), void *ctx)
{
    static const enum box_state states[] = {BOX_RUNNING, BOX_FROZEN};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[states[i]], node) {
            fn(ctx, e->stands_on);
        }
    size_t it = 0;
    for (const struct kept *k; (k = map_next(&b->kept, &it));)
        fn(ctx, k->stands_on);
}

bool boxes_stands(struct boxes *b, const char *layer, char ret_id[static ID_SANDBOX_LEN + 1])
{
    static const enum box_state states[] = {BOX_RUNNING, BOX_FROZEN, BOX_DRESSING};
    const char *id = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[states[i]], node) {
            bool somebodys = e->id[0] || e->request || e->kept;
            if (somebodys && (strcmp(e->stands_on, layer) == 0 || (!e->id[0] && strcmp(e->outfit.layer, layer) == 0)))
                id = e->request ? e->request->request.id : e->id;
        }
    LIST_FOREACH (struct waiting, w, &b->waiting, node) {
        if (strcmp(w->outfit.layer, layer) == 0)
            id = w->request.id;
    }
    LIST_FOREACH (struct task, t, &b->loose, node) {
        if (strcmp(t->stands_on, layer) == 0)
            id = t->id;
    }
    size_t it = 0;
    for (const struct kept *k; (k = map_next(&b->kept, &it));)
        if (strcmp(k->stands_on, layer) == 0)
            id = k->id;
    if (id)
        memcpy(ret_id, id, ID_SANDBOX_LEN + 1);
    return id != NULL;
}

int boxes_files(struct boxes *b, const char *id, struct boxes_files *ret_files, struct err *err)
{
    struct boxes_files f = {.box = ""};
    const struct kept *k = boxes_kept_find(b, id);
    if (k && !k->is_whole)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is being paused or resumed", id);
    const struct box_entry *e = k ? NULL : boxes_find(b, id, err);
    if (!k && !e)
        return -1;
    if (e)
        memcpy(f.box, e->box.name, sizeof(f.box));
    else
        memcpy(f.kept, k->id, sizeof(f.kept));
    memcpy(f.stands_on, e ? e->stands_on : k->stands_on, sizeof(f.stands_on));
    *ret_files = f;
    return 0;
}

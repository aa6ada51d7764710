/* SPDX-License-Identifier: Apache-2.0 */
/* What façades ask of the pool through coved: its figures, images unpacked into it, what differs between two trees of
 * it. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/store.h"
#include "sandbox/object.h"
#include "sandbox/owner.h"

/* ---- figures ---- */

struct asking {
    struct core *core;
    struct pool_figures figures;
    char layer[SUP_DIGEST_MAX];
    pool_figures_fn done;
    void *ctx;
};

static void pool_tell(struct asking *a, const struct err *err)
{
    a->done(a->ctx, err ? NULL : &a->figures, err);
    mem_free(a);
}

static void pool_on_layer(void *ctx, const union sup_message *item)
{
    struct asking *a = ctx;
    a->figures.layers++;
    a->figures.has_layer |= strncmp(item->layer.layer, a->layer, sizeof(a->layer)) == 0;
}

static void pool_on_layers(void *ctx, const union sup_message *answer, const struct err *err)
{
    pool_tell(ctx, answer ? NULL : err);
}

static void on_pool(void *ctx, const union sup_message *answer, const struct err *err)
{
    static const char *const kinds[] = {"copy", "reflink", "btrfs"};
    struct asking *a = ctx;
    struct err local;
    union sup_message m = {.head = {.type = SUP_LAYERS}};
    if (!answer) {
        pool_tell(a, err);
        return;
    }
    const struct sup_pooled *p = &answer->pooled;
    a->figures.kind = p->kind < ARRAY_SIZE(kinds) ? kinds[p->kind] : "unknown";
    a->figures.limits = p->limits;
    a->figures.total_bytes = p->total_bytes;
    a->figures.free_bytes = p->free_bytes;
    if (supervisor_call_with(a->core->supervisor, &m, -1, pool_on_layer, pool_on_layers, a, &local) < 0)
        pool_tell(a, &local);
}

int pool_figures(struct core *core, const char *layer, pool_figures_fn done, void *ctx, struct err *err)
{
    struct asking *a = mem_new(struct asking);
    union sup_message m = {.head = {.type = SUP_POOL}};
    *a = (struct asking){.core = core, .done = done, .ctx = ctx};
    memcpy(a->layer, layer, MIN(strlen(layer), sizeof(a->layer) - 1));
    if (supervisor_call(core->supervisor, &m, on_pool, a, err) == 0)
        return 0;
    mem_free(a);
    return -1;
}

/* ---- what takes a descriptor along ---- */

struct pool_job {
    struct core *core;
    char layer[SUP_DIGEST_MAX]; /* that is being made; "": none */
    pool_done_fn done;
    void *ctx;
};

static void pool_on_job(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct pool_job *j = ctx;
    if (j->layer[0])
        layers_fresh(j->core, j->layer);
    j->done(j->ctx, answer ? NULL : err);
    mem_free(j);
}

static int pool_begin(struct core *core, union sup_message *m, int fd, const char *layer, pool_done_fn done, void *ctx,
                      struct err *err)
{
    struct pool_job *j = mem_new(struct pool_job);
    *j = (struct pool_job){.core = core, .done = done, .ctx = ctx};
    memcpy(j->layer, layer, strlen(layer));
    if (layer[0])
        layers_making(core, layer);
    if (supervisor_call_with(core->supervisor, m, fd, NULL, pool_on_job, j, err) == 0)
        return 0;
    if (layer[0])
        layers_settled(core, layer);
    mem_free(j);
    return -1;
}

int layers_image(struct core *core, uint64_t tenant, const char *layer, int fd, pool_done_fn done, void *ctx,
                 struct err *err)
{
    union sup_message m = {.layer_id = {.head = {.type = SUP_IMAGE}}};
    AUTO_CLOSE int passed = fd;
    if (!layer_name_is(layer))
        return err_set(err, ERR_INVALID_ARGUMENT, "'%.80s' is not the name of a layer", layer);
    memcpy(m.layer_id.layer, layer, strlen(layer));
    m.layer_id.owner = owner_of(core, tenant);
    return pool_begin(core, &m, TAKE_FD(passed), layer, done, ctx, err);
}

/* A sandbox's id, a layer, or "". */
static int side(struct core *core, uint64_t view, struct str which, char ret_name[static SUP_DIGEST_MAX],
                struct err *err)
{
    const struct template *t;
    if (!which.n)
        return 0;
    if (which.n < SUP_DIGEST_MAX)
        memcpy(ret_name, which.p, which.n);
    const struct sandbox *sb = sandbox_find(core, which);
    if (sb && view_has(view, sb->info.tenant) && !sandbox_state_is_over(sb->info.state)) {
        memset(ret_name, 0, SUP_DIGEST_MAX);
        memcpy(ret_name, sb->info.id, ID_SANDBOX_LEN);
        return 0;
    }
    /* A layer has no owner: it is named by who sees all. */
    if (view_home(view) == TENANT_DEFAULT && which.n < SUP_DIGEST_MAX && !str_has_nul(which) && layer_name_is(ret_name))
        return 0;
    memset(ret_name, 0, SUP_DIGEST_MAX);
    if (template_resolve(core->templates, view, which, &t, NULL, err) < 0)
        return err_set(err, ERR_NOT_FOUND, "'%.*s' is not a living sandbox, snapshot or template",
                       (int)MIN(which.n, (size_t)80), which.p);
    memcpy(ret_name, t->layer, strlen(t->layer));
    return 0;
}

int layers_diff(struct core *core, uint64_t view, struct str a, struct str b, int fd, pool_done_fn done, void *ctx,
                struct err *err)
{
    union sup_message m = {.diff = {.head = {.type = SUP_DIFF}}};
    AUTO_CLOSE int passed = fd;
    if (side(core, view, a, m.diff.a, err) < 0 || side(core, view, b, m.diff.b, err) < 0)
        return -1;
    return pool_begin(core, &m, TAKE_FD(passed), "", done, ctx, err);
}

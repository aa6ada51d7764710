/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/layers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "kernel/pool/pool.h"

struct pool_layer {
    char name[SUP_DIGEST_MAX], below[SUP_DIGEST_MAX];
    uint64_t bytes;
    uint64_t seen; /* in which round */
    uint32_t in_use;
};

/* Nothing of a layer ever changes, so what was read of it once is known; the pool is asked only which there are. */
struct pool_layers {
    struct pool *pool;
    struct boxes *boxes;
    struct map by_name;
    uint64_t round;
    struct err failed; /* of this round: what stands on what is not known */
};

struct pool_layers *layers_new(struct pool *pool, struct boxes *boxes)
{
    struct pool_layers *l = mem_new(struct pool_layers);
    l->pool = pool;
    l->boxes = boxes;
    l->by_name = MAP_INIT;
    return l;
}

static void layers_forget(struct pool_layers *l, struct pool_layer *layer)
{
    (void)map_del(&l->by_name, str_of(layer->name));
    mem_free(layer);
}

void layers_free(struct pool_layers *l)
{
    MAP_FOREACH (struct pool_layer, layer, &l->by_name)
        mem_free(layer);
    map_fini(&l->by_name);
    mem_free(l);
}

static void see(void *ctx, const char *name)
{
    struct pool_layers *l = ctx;
    struct pool_layer *layer = map_get(&l->by_name, str_of(name));
    if (!layer) {
        struct pool_chain chain;
        int r = pool_chain_read(l->pool, name, &chain);
        /* What can't be read now is asked for again; what says nothing stands on nothing. */
        if (r < 0 && r != -ENOENT && r != -EBADMSG) {
            (void)err_errno(&l->failed, r, "layer %s: read the layers below it", name);
            return;
        }
        layer = mem_new(struct pool_layer);
        (void)snprintf(layer->name, sizeof(layer->name), "%s", name);
        if (r == 0 && chain.n > 1)
            memcpy(layer->below, chain.names[1], sizeof(layer->below));
        if (r < 0)
            log_error("layer %s: read the layers below it: %s", name, strerror(-r));
        (void)map_put(&l->by_name, str_of(layer->name), layer);
    }
    if (layer->bytes == 0) /* it may have its name before its size is known */
        layer->bytes = pool_layer_bytes(l->pool, name);
    layer->seen = l->round;
    layer->in_use = 0;
}

/* What is not there any more; a map must not change while it is walked. */
static struct pool_layer *find_unseen(struct pool_layers *l)
{
    MAP_FOREACH (struct pool_layer, layer, &l->by_name)
        if (layer->seen != l->round)
            return layer;
    return NULL;
}

static int layers_look(struct pool_layers *l, struct err *err)
{
    l->round++;
    l->failed.code = ERR_OK;
    int r = pool_layer_each(l->pool, see, l);
    if (r < 0)
        return err_errno(err, r, "list the layers");
    if (l->failed.code != ERR_OK) {
        *err = l->failed;
        return -1;
    }
    for (struct pool_layer *gone; (gone = find_unseen(l));)
        layers_forget(l, gone);
    return 0;
}

static void layers_count(void *ctx, const char *name)
{
    struct pool_layers *l = ctx;
    struct pool_layer *layer = map_get(&l->by_name, str_of(name));
    if (layer)
        layer->in_use++;
}

int layers_each(struct pool_layers *l, void (*fn)(void *ctx, const struct sup_layer *layer), void *ctx, struct err *err)
{
    if (layers_look(l, err) < 0)
        return -1;
    boxes_each_standing(l->boxes, layers_count, l);
    MAP_FOREACH (const struct pool_layer, layer, &l->by_name) {
        struct sup_layer m;
        memset(&m, 0, sizeof(m));
        memcpy(m.layer, layer->name, sizeof(m.layer));
        memcpy(m.below, layer->below, sizeof(m.below));
        m.bytes = layer->bytes;
        m.in_use = layer->in_use;
        fn(ctx, &m);
    }
    return 0;
}

int layers_drop(struct pool_layers *l, const char *name, struct err *err)
{
    char id[ID_SANDBOX_LEN + 1];
    if (layers_look(l, err) < 0)
        return -1;
    struct pool_layer *layer = map_get(&l->by_name, str_of(name));
    if (!layer)
        return err_set(err, ERR_NOT_FOUND, "layer %s is not in the storage pool", name);
    MAP_FOREACH (const struct pool_layer, other, &l->by_name)
        if (strcmp(other->below, name) == 0)
            return err_set(err, ERR_FAILED_PRECONDITION, "layer %s stands on it", other->name);
    if (boxes_stands(l->boxes, name, id))
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s stands on it", id);
    boxes_drop_unused(l->boxes, name);
    fault_point("coved.drop.begin");
    int r = pool_layer_drop(l->pool, name);
    if (r < 0)
        return err_errno(err, r, "drop layer %s", name);
    layers_forget(l, layer);
    return 0;
}

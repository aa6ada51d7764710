/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/requests_internal.h"
#include "kernel/pool.h"

#include <string.h>

struct listing {
    struct requests *r;
    uint32_t tag;
};

static void answer(struct requests *r, const struct sup_head *head, int failed, const struct err *err)
{
    request_done(r, SUP_DONE, head->tag, -1, failed < 0 ? err : NULL);
}

static void warm(struct requests *r, const struct sup_warm *m)
{
    struct err err;
    if (!request_is_layer(m->layer)) {
        request_malformed(r, &m->head);
        return;
    }
    int failed = request_check_limits(m->memory_bytes, m->pids, &err);
    failed = failed ? failed : boxes_want(r->boxes, m, r->default_pids, &err);
    answer(r, &m->head, failed, &err);
}

static void tell_layer(void *ctx, const struct sup_layer *layer)
{
    const struct listing *l = ctx;
    struct sup_layer m = *layer;
    m.head = (struct sup_head){SUP_LAYER, l->tag};
    worker_send(l->r->worker, &m, sizeof(m), -1);
}

static void layers(struct requests *r, const struct sup_head *m)
{
    struct err err;
    struct listing listing = {r, m->tag};
    answer(r, m, layers_each(r->layers, tell_layer, &listing, &err), &err);
}

static void layer_drop(struct requests *r, const struct sup_layer_id *m)
{
    struct err err;
    if (!request_is_layer(m->layer))
        request_malformed(r, &m->head);
    else
        answer(r, &m->head, layers_drop(r->layers, m->layer, &err), &err);
}

static void pool(struct requests *r, const struct sup_head *head)
{
    static const uint32_t kinds[] = {
        [POOL_COPY] = SUP_POOL_COPY, [POOL_REFLINK] = SUP_POOL_REFLINK, [POOL_BTRFS] = SUP_POOL_BTRFS};
    const struct pool_features *f = pool_features(r->pool);
    struct pool_space space = {0};
    struct sup_pooled m;
    int ignored UNUSED = pool_space(r->pool, &space); /* 0: not known */
    memset(&m, 0, sizeof(m));
    m.head = (struct sup_head){SUP_POOLED, head->tag};
    m.kind = kinds[f->kind];
    m.limits = f->limits;
    m.total_bytes = space.total;
    m.free_bytes = space.free;
    worker_send(r->worker, &m, sizeof(m), -1);
}

bool requests_handle_pool(struct requests *r, const union sup_message *m)
{
    switch (m->head.type) {
    case SUP_WARM:
        warm(r, &m->warm);
        return true;
    case SUP_LAYERS:
        layers(r, &m->head);
        return true;
    case SUP_LAYER_DROP:
        layer_drop(r, &m->layer_id);
        return true;
    case SUP_POOL:
        pool(r, &m->head);
        return true;
    default:
        return false;
    }
}

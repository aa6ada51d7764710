/* SPDX-License-Identifier: Apache-2.0 */
#include "build/cache.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "sandbox/templates.h"

/* A use is written when the row is older than this. */
#define USE_STEP (600 * USEC_PER_SEC)

struct item {
    struct store_cached c;
    struct list node; /* least recently used first */
    usec_t stored;    /* the use that the store knows of */
};

struct cache {
    struct core *core;
    struct store *store;
    struct map by_key;
    struct list by_use;
    uint64_t bytes;
};

static void item_free(struct cache *c, struct item *item)
{
    (void)map_del(&c->by_key, str_of(item->c.key));
    list_remove(&item->node);
    c->bytes -= item->c.bytes;
    MEM_FREE(item->c.key, item->c.layer, item->c.result, item);
}

static struct item *item_new(struct cache *c, const struct store_cached *from)
{
    struct item *item = mem_new(struct item);
    item->c = *from;
    item->c.key = mem_strdup(from->key);
    item->c.layer = mem_strdup(from->layer);
    item->c.result = mem_strdup(from->result);
    item->stored = from->used_at;
    c->bytes += from->bytes;
    (void)map_put(&c->by_key, str_of(item->c.key), item);
    list_append(&c->by_use, &item->node);
    return item;
}

static void cache_load(void *ctx, const struct store_cached *row)
{
    struct cache *c = ctx;
    struct item *item = item_new(c, row);
    struct list *at = c->by_use.prev->prev;
    list_remove(&item->node);
    while (at != &c->by_use && container_of(at, struct item, node)->c.used_at > item->c.used_at)
        at = at->prev;
    list_prepend(at, &item->node);
}

int cache_new(struct core *core, struct cache **ret_cache, struct err *err)
{
    struct cache *c = mem_new(struct cache);
    c->core = core;
    c->store = core_config(core)->store;
    list_init(&c->by_use);
    if (cache_rows_each(c->store, cache_load, c, err) < 0 || cache_trim(c, false, err) < 0) {
        cache_free(c);
        return err_prefix(err, "read the cache of builds");
    }
    *ret_cache = c;
    return 0;
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    LIST_FOREACH (struct item, item, &c->by_use, node)
        item_free(c, item);
    map_fini(&c->by_key);
    mem_free(c);
}

static int write_row(struct cache *c, struct item *item, struct err *err)
{
    item->stored = item->c.used_at;
    core_templates_changed(c->core);
    return cache_rows_put(c->store, &item->c, err);
}

const struct store_cached *cache_get(struct cache *c, const char *key)
{
    struct item *item = map_get(&c->by_key, str_of(key));
    struct err ignored;
    if (!item)
        return NULL;
    item->c.used_at = clock_real();
    list_remove(&item->node);
    list_append(&c->by_use, &item->node);
    if (item->c.used_at > item->stored + USE_STEP && write_row(c, item, &ignored) < 0)
        item->stored = 0; /* the store is full; the next use tries again */
    return &item->c;
}

static int cache_forget(struct cache *c, struct item *item, struct err *err)
{
    if (cache_rows_delete(c->store, item->c.key, err) < 0)
        return -1;
    core_templates_changed(c->core);
    item_free(c, item);
    return 0;
}

int cache_trim(struct cache *c, bool all, struct err *err)
{
    usec_t now = clock_real(), oldest = now - MIN(now, (usec_t)CACHE_DAYS * 86400 * USEC_PER_SEC);
    LIST_FOREACH (struct item, item, &c->by_use, node) {
        bool goes =
            all || item->c.used_at < oldest || map_count(&c->by_key) > CACHE_ENTRIES_MAX || c->bytes > CACHE_BYTES_MAX;
        if (!goes)
            break;
        if (cache_forget(c, item, err) < 0)
            return -1;
    }
    return 0;
}

int cache_put(struct cache *c, const char *key, const char *layer, const char *result, uint64_t bytes, struct err *err)
{
    struct item *item = map_get(&c->by_key, str_of(key));
    usec_t now = clock_real();
    if (item)
        item_free(c, item);
    item =
        item_new(c, &(struct store_cached){
                        .key = key, .layer = layer, .result = result, .bytes = bytes, .made_at = now, .used_at = now});
    if (write_row(c, item, err) < 0) {
        item_free(c, item);
        return -1;
    }
    return cache_trim(c, false, err);
}

void cache_each_layer(struct cache *c, void (*fn)(void *ctx, const char *layer), void *ctx)
{
    LIST_FOREACH (struct item, item, &c->by_use, node)
        fn(ctx, item->c.layer);
}

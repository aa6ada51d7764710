/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that were done before: key (build/context.h) -> the layer that came out and the context behind it. In memory
 * and in the store; its layers are roots of the pool. Bounded: what was not used for longest goes.
 */
#pragma once

#include "sandbox/life/layers.h"
#include "store/template_rows.h"

enum { CACHE_ENTRIES_MAX = 2000, CACHE_DAYS = 30 };
#define CACHE_BYTES_MAX (UINT64_C(32) << 30)

struct cache;

int cache_new(struct core *core, struct cache **ret_cache, struct err *err) WARN_UNUSED;
void cache_free(struct cache *c);

/* Valid until the next call; marks it as used. bytes: of the layer alone; 0: not known. */
const struct store_cached *cache_get(struct cache *c, const char *key);
int cache_put(struct cache *c, const char *key, const char *layer, const char *result, uint64_t bytes,
              struct err *err) WARN_UNUSED;

void cache_each_layer(struct cache *c, void (*fn)(void *ctx, const char *layer), void *ctx);
/* Forgets what is too old or too much, or all of it. */
int cache_trim(struct cache *c, bool all, struct err *err) WARN_UNUSED;

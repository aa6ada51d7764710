/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from bytes or 64-bit numbers to pointers. Keys are hashed with a random per-process secret (SipHash-1-3), so
 * that whoever chooses keys can't choose collisions. Byte keys are copied; values are the caller's. Not ordered.
 */
#pragma once

#include "base/str.h"

struct map {
    struct map_slot *slots;
    size_t count, cap;
};

#define MAP_INIT ((struct map){NULL, 0, 0})

void map_fini(struct map *m); /* values are not touched */

void *map_get(const struct map *m, struct str key);        /* NULL when absent */
void *map_put(struct map *m, struct str key, void *value); /* returns the value it replaced, or NULL; value not NULL */
void *map_del(struct map *m, struct str key);              /* returns what was there, or NULL */

void *map_get_u64(const struct map *m, uint64_t key);
void *map_put_u64(struct map *m, uint64_t key, void *value);
void *map_del_u64(struct map *m, uint64_t key);

static inline size_t map_count(const struct map *m)
{
    return m->count;
}

/* Iteration: size_t it = 0; while ((v = map_next(m, &it))). The map must not change meanwhile. */
void *map_next(const struct map *m, size_t *it);

/* The same as a loop; two of them, as in base/list.h. */
#define MAP_FOREACH(type, var, m)                                                                                      \
    for (size_t var##_it_ = 0, var##_goes_on_ = 1; var##_goes_on_;)                                                    \
        for (type *var = (var##_goes_on_ = 0, map_next((m), &var##_it_)); var; var = NULL, var##_goes_on_ = 1)

/* Any of its values: for loops that take one out at a time. NULL: it is empty. */
static inline void *map_any(const struct map *m)
{
    size_t it = 0;

    return map_next(m, &it);
}

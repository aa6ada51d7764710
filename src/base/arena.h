/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one request: many small allocations, freed at once. Allocations are 16-byte aligned and zeroed; never
 * NULL. */
#pragma once

#include "base/str.h"

struct arena {
    struct arena_block *head;
};

#define ARENA_INIT ((struct arena){NULL})

void *arena_alloc(struct arena *a, size_t n);
char *arena_strndup(struct arena *a, const char *s, size_t n); /* terminated copy of exactly n bytes */
char *arena_strdup(struct arena *a, const char *text);         /* NULL stays NULL */
struct str arena_str(struct arena *a, struct str s);           /* copy, terminated behind its end */
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void arena_fini(struct arena *a); /* frees all of it; usable again afterwards */
void arena_wipe(struct arena *a); /* the same, for what held secrets */

static inline UNUSED void arena_fini_auto_(struct arena *a)
{
    arena_fini(a);
}
#define AUTO_ARENA __attribute__((cleanup(arena_fini_auto_)))

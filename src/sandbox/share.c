/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/share.h"
#include "base/map.h"

struct list *share_first(struct list *all, share_fn tenant_of, share_fn size_of)
{
    struct map counts = MAP_INIT;
    uint64_t largest = 0;
    size_t most = 0;
    for (const struct list *it = all->next; it != all; it = it->next) {
        uint64_t tenant = tenant_of(it);
        size_t n = (size_t)(uintptr_t)map_get_u64(&counts, tenant) + (size_of ? size_of(it) : 1);
        (void)map_put_u64(&counts, tenant, (void *)(uintptr_t)n);
        largest = n > most ? tenant : largest;
        most = MAX(n, most);
    }
    map_fini(&counts);
    for (struct list *it = all->next; it != all; it = it->next)
        if (tenant_of(it) == largest)
            return it;
    return NULL;
}

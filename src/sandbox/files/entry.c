/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/files/entry.h"

bool entry_get(struct wire_reader *r, struct wire_entry *ret)
{
    struct file_entry *e = &ret->e;
    *e = (struct file_entry){.name = wire_get_str(r)};
    e->path = wire_get_str(r);
    uint8_t type = wire_get_u8(r);
    e->type = (enum wire_file_type)type;
    e->mode = wire_get_u32(r);
    e->link_mode = wire_get_u32(r);
    e->size = wire_get_u64(r);
    e->uid = wire_get_u32(r);
    e->gid = wire_get_u32(r);
    e->owner = wire_get_str(r);
    e->group = wire_get_str(r);
    e->mtime_ns = wire_get_u64(r);
    uint8_t is_link = wire_get_u8(r);
    e->is_link = is_link;
    e->target = wire_get_str(r);
    uint32_t n = wire_get_count(r, 2 * sizeof(uint32_t));
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        struct pair pair = {.key = wire_get_str(r)};
        pair.value = wire_get_str(r);
        if (i < ENTRY_METADATA_MAX)
            ret->metadata[i] = pair;
    }
    e->metadata = ret->metadata;
    e->n_metadata = MIN(n, (uint32_t)ENTRY_METADATA_MAX);
    if (r->bad)
        return true;
    return type <= WIRE_FILE_DIRECTORY && is_link <= 1 && n <= ENTRY_METADATA_MAX && e->path.n && e->path.p[0] == '/' &&
           !str_has_nul(e->path) && !str_has_nul(e->name);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/supervisor.h"

/* cove-api reads code and message of both kinds of answer as those of struct sup_done. */
static_assert(offsetof(struct sup_stored, code) == offsetof(struct sup_done, code) &&
                  offsetof(struct sup_stored, message) == offsetof(struct sup_done, message),
              "an answer begins like every other");

size_t sup_size(uint32_t type)
{
    static const size_t sizes[] = {[SUP_CREATE] = sizeof(struct sup_create),
                                   [SUP_KILL] = sizeof(struct sup_id),
                                   [SUP_ATTACH] = sizeof(struct sup_id),
                                   [SUP_USAGE] = sizeof(struct sup_id),
                                   [SUP_RESUME] = sizeof(struct sup_id),
                                   [SUP_LIST] = sizeof(struct sup_head),
                                   [SUP_LAYERS] = sizeof(struct sup_head),
                                   [SUP_VOLUMES] = sizeof(struct sup_head),
                                   [SUP_POOL] = sizeof(struct sup_head),
                                   [SUP_EGRESS] = sizeof(struct sup_head),
                                   [SUP_AGAIN] = sizeof(struct sup_head),
                                   [SUP_RESTARTED] = sizeof(struct sup_head),
                                   [SUP_PAUSE] = sizeof(struct sup_pause),
                                   [SUP_SNAPSHOT] = sizeof(struct sup_snapshot),
                                   [SUP_REWIND] = sizeof(struct sup_snapshot),
                                   [SUP_WARM] = sizeof(struct sup_warm),
                                   [SUP_LAYER_DROP] = sizeof(struct sup_layer_id),
                                   [SUP_IMAGE] = sizeof(struct sup_layer_id),
                                   [SUP_DIFF] = sizeof(struct sup_diff),
                                   [SUP_VOLUME_MAKE] = sizeof(struct sup_volume_id),
                                   [SUP_VOLUME_DROP] = sizeof(struct sup_volume_id),
                                   [SUP_OWNER] = sizeof(struct sup_owner),
                                   [SUP_VOLUME_USAGE] = sizeof(struct sup_volumes),
                                   [SUP_VOLUME_MOUNT] = sizeof(struct sup_volume_mount),
                                   [SUP_NEST] = sizeof(struct sup_nest),
                                   [SUP_STORED] = sizeof(struct sup_stored),
                                   [SUP_LAYER] = sizeof(struct sup_layer),
                                   [SUP_VOLUME] = sizeof(struct sup_volume),
                                   [SUP_POOLED] = sizeof(struct sup_pooled),
                                   [SUP_CREATED] = sizeof(struct sup_done),
                                   [SUP_DONE] = sizeof(struct sup_done),
                                   [SUP_ATTACHED] = sizeof(struct sup_done),
                                   [SUP_LISTED] = sizeof(struct sup_listed),
                                   [SUP_USED] = sizeof(struct sup_used),
                                   [SUP_ENDED] = sizeof(struct sup_ended),
                                   [SUP_SEEN] = sizeof(struct sup_seen)};
    type &= ~(uint32_t)SUP_REPEATED;
    return type < ARRAY_SIZE(sizes) ? sizes[type] : 0;
}

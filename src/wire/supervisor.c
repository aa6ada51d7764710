/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/supervisor.h"

/* cove-api reads code and message of both kinds of answer as those of struct sup_done. */
static_assert(offsetof(struct sup_stored, code) == offsetof(struct sup_done, code) &&
                  offsetof(struct sup_stored, message) == offsetof(struct sup_done, message),
              "an answer begins like every other");

size_t sup_size(uint32_t type)
{
    switch ((enum sup_type)(type & ~(uint32_t)SUP_REPEATED)) {
    case SUP_CREATE:
        return sizeof(struct sup_create);
    case SUP_KILL:
    case SUP_ATTACH:
    case SUP_USAGE:
    case SUP_RESUME:
        return sizeof(struct sup_id);
    case SUP_LIST:
    case SUP_LAYERS:
    case SUP_VOLUMES:
    case SUP_POOL:
    case SUP_EGRESS:
    case SUP_AGAIN:
    case SUP_RESTARTED:
        return sizeof(struct sup_head);
    case SUP_PAUSE:
        return sizeof(struct sup_pause);
    case SUP_SNAPSHOT:
    case SUP_REWIND:
        return sizeof(struct sup_snapshot);
    case SUP_WARM:
        return sizeof(struct sup_warm);
    case SUP_LAYER_DROP:
    case SUP_IMAGE:
        return sizeof(struct sup_layer_id);
    case SUP_DIFF:
        return sizeof(struct sup_diff);
    case SUP_VOLUME_MAKE:
    case SUP_VOLUME_DROP:
        return sizeof(struct sup_volume_id);
    case SUP_VOLUME_USAGE:
        return sizeof(struct sup_volumes);
    case SUP_VOLUME_MOUNT:
        return sizeof(struct sup_volume_mount);
    case SUP_NEST:
        return sizeof(struct sup_nest);
    case SUP_STORED:
        return sizeof(struct sup_stored);
    case SUP_LAYER:
        return sizeof(struct sup_layer);
    case SUP_VOLUME:
        return sizeof(struct sup_volume);
    case SUP_POOLED:
        return sizeof(struct sup_pooled);
    case SUP_CREATED:
    case SUP_DONE:
    case SUP_ATTACHED:
        return sizeof(struct sup_done);
    case SUP_LISTED:
        return sizeof(struct sup_listed);
    case SUP_USED:
        return sizeof(struct sup_used);
    case SUP_ENDED:
        return sizeof(struct sup_ended);
    case SUP_SEEN:
        return sizeof(struct sup_seen);
    }
    return 0;
}

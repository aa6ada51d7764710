/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/supervisor.h"

size_t sup_size(uint32_t type)
{
    switch ((enum sup_type)type) {
    case SUP_CREATE:
        return sizeof(struct sup_create);
    case SUP_KILL:
    case SUP_ATTACH:
    case SUP_USAGE:
        return sizeof(struct sup_id);
    case SUP_LIST:
    case SUP_EGRESS:
        return sizeof(struct sup_head);
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
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One request to what is in a volume, as its files see it. Private to volume_content.c and volume_transfer.c. */
#pragma once

#include "api/e2b/volumes/volume_content.h"
#include "api/kit/file_body.h"

#define VOLUME_USER STR("root")

struct content {
    struct str path; /* as it was asked for, cleaned: "/" is the volume */
    bool force;
    int64_t uid, gid, mode, depth; /* -1: not given */
    int ok_status;
    struct sandbox *opened; /* the volume's; ours to release */
    struct buf listing;
    struct file_body body;
};

static inline struct content *content_of(struct call *c)
{
    return c->state;
}

void content_change(struct call *c); /* sets owner and mode, as far as given, then that */

route_handler volume_download, volume_upload;

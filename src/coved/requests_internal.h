/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that requests.h is made of: requests.c (lives of sandboxes), requests_state.c (their pauses and
 * snapshots), requests_pool.c (layers, volumes, the pool). */
#pragma once

#include "coved/requests.h"

/* A text field: terminated within its size. */
bool request_is_text(const char *p, size_t size);
bool request_is_id(const char id[static ID_SANDBOX_LEN + 1]);
bool request_is_layer(const char layer[static SUP_DIGEST_MAX]);

/* ERR_INVALID_ARGUMENT: none that a sandbox could live with. 0: no limit. */
int request_check_limits(uint64_t memory_bytes, uint32_t pids, struct err *err) WARN_UNUSED;

void request_done(struct requests *r, uint32_t type, uint32_t tag, int fd, const struct err *err);
int request_malformed(const union sup_message *m, struct err *err) WARN_UNUSED;

/* What boxes.h and others hand back with the answer. */
uint64_t request_asked(const struct requests *r, const struct sup_head *head);
/* False: by a worker that is gone. */
bool request_is_awaited(const struct requests *r, uint64_t asked, uint32_t *ret_tag);

/* One of each type. 0: it is done, 1: the answer was given, or follows. Who takes r->fd leaves -1 there. */
typedef int request_fn(struct requests *r, const union sup_message *message, struct err *err);
request_fn requests_pause, requests_resume, requests_snapshot, requests_rewind;
request_fn requests_warm, requests_layers, requests_layer_drop, requests_volumes, requests_volume_usage,
    requests_volume, requests_volume_mount, requests_owner, requests_pool, requests_image, requests_compare,
    requests_nest;

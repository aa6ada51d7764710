/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and events of watched directories, shared by streams and by watchers that are polled. */
#pragma once

#include "api/kit/json_read.h"
#include "base/buf.h"
#include "sandbox/files/files.h"

/* {"path","recursive","includeEntry","allowNetworkMounts"} as a path and flags of enum wire_watch_flag. */
int watch_request_read(const json_t *message, struct str *ret_path, uint8_t *ret_flags, struct err *err) WARN_UNUSED;

/* {"name":…,"type":"EVENT_TYPE_…"[,"entry":{…}]} */
void watch_event_append(struct buf *b, enum wire_watch_kind kind, struct str name, const struct file_entry *entry);

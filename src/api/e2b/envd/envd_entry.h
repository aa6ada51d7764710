/* SPDX-License-Identifier: Apache-2.0 */
/* A file's entry as the in-sandbox daemon's API shows it (proto3 JSON: defaults are left out, int64 are strings). */
#pragma once

#include "base/buf.h"
#include "sandbox/files/files.h"

enum { ENTRY_PERMISSIONS_MAX = 24 };

/* "-rw-r--r--", "drwxr-xr-x", "Lrwxrwxrwx", "dtrwxrwxrwx": kind and special bits as letters, then nine permissions. */
void entry_permissions(uint32_t st_mode, char ret_text[static ENTRY_PERMISSIONS_MAX]);

void entry_append(struct buf *b, const struct file_entry *entry, bool brief); /* brief: name, type and path alone */

/* {"path":…,"name":…,"type":"file"[,"metadata":{…}]}: one item of an upload's answer. */
void entry_append_uploaded(struct buf *b, const struct file_entry *entry);

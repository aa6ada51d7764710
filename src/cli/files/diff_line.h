/* SPDX-License-Identifier: Apache-2.0 */
/* One difference as `cove diff` prints it: "A /path", with a slash behind a directory. */
#pragma once

#include "base/buf.h"
#include "base/json.h"

/* Appends it as it is on disk, any byte but NUL, of an object of the service's answer. -EILSEQ: it is none, nothing was
 * appended; or as buf.h. */
int diff_line_read(struct buf *b, const json_t *object) WARN_UNUSED;

/*
 * Appends it for whoever reads lines: what terminal_escape() escapes, and what takes no room, is \xNN, a backslash \\,
 * so that there is one line for each and the name can be had back.
 */
void diff_line_escape(struct buf *b, struct str line);

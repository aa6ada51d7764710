/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of events is JSON text that is stored, hashed and printed as it is; so it is checked once, where it comes
 * in. Strict RFC 8259, at most EVENT_JSON_DEPTH_MAX levels, well-formed UTF-8.
 */
#pragma once

#include "base/buf.h"

enum { EVENT_JSON_DEPTH_MAX = 64 };

/*
 * Appends the value without the blanks between its tokens, so it is one line. 0, -EILSEQ when it is not JSON, or the
 * buf's error; in all but the first case what was appended is of no use.
 */
int json_compact(struct str text, struct buf *b) WARN_UNUSED;

/* The text of member `name` of a compact object, with quotes when it is a string; false when there is none. */
bool json_member(struct str object, const char *name, struct str *ret_value) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/* Where a page of the sandbox list ended: base64url of "<RFC 3339 time>__<id>", with "__asc" behind it when the oldest
 * come first. */
#pragma once

#include "base/clock.h"
#include "base/id.h"

enum { CURSOR_TEXT_MAX = 128 };

struct cursor {
    usec_t started;
    char id[ID_SANDBOX_LEN + 1];
    bool ascending;
};

void cursor_format(const struct cursor *cursor, char ret_text[static CURSOR_TEXT_MAX]);
int cursor_parse(struct str text, struct cursor *ret_cursor) WARN_UNUSED; /* -EINVAL */

/* Does a sandbox come after the cursor? Order: started descending, then id ascending; ascending is the exact
 * reverse. */
bool cursor_is_before(const struct cursor *cursor, usec_t started, const char *id);

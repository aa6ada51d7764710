/* SPDX-License-Identifier: Apache-2.0 */
/* What a list request asks for, and which sandboxes that is. */
#pragma once

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "sandbox/sandbox.h"

/* Where a page ended: base64url of "<RFC 3339 time>__<id>", with "__asc" behind it when the oldest come first. */
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

enum { LIST_LIMIT_MAX = 100, LIST_FILTERS_MAX = 64 };

struct list_query {
    struct pair metadata[LIST_FILTERS_MAX]; /* all must be equal */
    size_t n_metadata;
    bool running, paused;
    bool ascending;
    unsigned limit;
    bool has_cursor;
    struct cursor cursor;
    usec_t started_after; /* at or after; 0: any */
    struct str template;  /* id or alias; p NULL: any */
};

/* query: raw, as in the URL. ERR_INVALID_ARGUMENT. Strings live in the arena. */
int list_query_parse(struct str query, struct arena *arena, struct list_query *ret_query, struct err *err) WARN_UNUSED;

/* By state, metadata, time and template; the cursor is not looked at. */
bool list_query_matches(const struct list_query *q, const struct sandbox_info *info);

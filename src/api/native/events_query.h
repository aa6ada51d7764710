/* SPDX-License-Identifier: Apache-2.0 */
/* What a client that follows a log or the feed says of where it was and of what it wants. */
#pragma once

#include "base/str.h"

/* Last-Event-ID: decimal digits. Gives the number that comes behind it. 0, or -EINVAL for what is none of our ids. */
int events_next_parse(struct str last_event_id, uint64_t *ret_next) WARN_UNUSED;

/* kinds: "exec.,sandbox.ended", each the beginning of a kind; empty: every kind fits. */
bool events_kind_fits(struct str kinds, struct str kind);

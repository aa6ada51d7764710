/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events (text/event-stream): appends one event to a buffer. */
#pragma once

#include "base/buf.h"

struct sse_event {
    struct str id, event; /* one line each; left out when p is NULL */
    struct str data;      /* any text; every line of it becomes a data: line */
};

/* -EINVAL when id or event hold a line break or NUL. */
int sse_append(struct buf *b, const struct sse_event *event);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the chain of one sandbox's log. It walks the whole log (about a million events per second and core): on the
 * loop for short logs only, else in a worker thread over store_open_reader() and its own event_log.
 */
#pragma once

#include "event/log.h"

enum event_fault {
    EVENT_INTACT = 0,
    EVENT_FAULT_HASH,      /* the event was changed, or stands in another's place */
    EVENT_FAULT_GAP,       /* an event is missing before later ones */
    EVENT_FAULT_TRUNCATED, /* the newest events are missing */
    EVENT_FAULT_EXTRA,     /* there are events behind the recorded end */
    EVENT_FAULT_HEAD,      /* all events are good, but the recorded end is another */
};

struct event_verdict {
    enum event_fault fault;
    uint64_t bad_seq;     /* the first bad or missing one; 0 when intact */
    uint64_t first, last; /* range that the head says there is */
    uint64_t checked;     /* good events */
    char detail[128];     /* for people: "event 17 was changed, or another stands in its place" */
};

/* ERR_NOT_FOUND when there is no such log. A broken chain is not an error but a verdict. */
int event_verify(struct event_log *log, const char *sandbox, struct event_verdict *ret_verdict,
                 struct err *err) WARN_UNUSED;

const char *event_fault_name(enum event_fault fault); /* "intact", "hash", "gap", "truncated", "extra", "head" */

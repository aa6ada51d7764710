/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the chain of one sandbox's log and rebuilds its state from it. Both walk the whole log (about a million events
 * per second and core): on the loop for short logs only, else in a worker thread over store_open_reader() and its own
 * event_log.
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

/*
 * What the log says about the sandbox. Two replays of the same log, or of two logs that tell the same story, give the
 * same digest: it covers all fields but the seqs and times.
 */
struct event_state {
    uint64_t first, last; /* seqs folded */
    bool complete;        /* from seq 1 on: nothing was pruned */
    const char *phase;    /* a literal: "", creating, running, pausing, paused, resuming, stopping, ended or failed */
    uint64_t actions;     /* by clients */
    uint64_t execs_started;
    uint64_t execs_exited;
    uint64_t execs_failed;
    uint64_t file_changes; /* asked for: file.write, file.move, file.remove, file.mkdir */
    uint64_t files_failed; /* file.failed */
    uint64_t denied;       /* guard.denied, net.denied */
    uint64_t violations;
    char end_cause[64]; /* data.cause of the last sandbox.ended or sandbox.failed */
    unsigned char digest[EVENT_HASH_SIZE];
};

int event_replay(struct event_log *log, const char *sandbox, struct event_state *ret_state,
                 struct err *err) WARN_UNUSED;

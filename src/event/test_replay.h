/* SPDX-License-Identifier: Apache-2.0 */
/* A log read as a story: for tests that compare what two logs say, and that a log says what happened. */
#pragma once

#include "event/log.h"

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

int event_replay(struct event_log *log, const char *sandbox, struct event_state *ret_state, struct err *err);

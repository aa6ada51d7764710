/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a worker's loop still turn? It is asked over a socket of its own, one byte at a time, and answers from that loop
 * (daemon/pulse.h). A worker that died is noticed without this; one that hangs is not.
 *
 * Invariants
 *  1. Time counts as silence only when coved itself was punctual in it: whatever stops or starves the whole machine (a
 *     suspended laptop, a stopped container, a moment without memory) is nobody's fault. On a machine that is always
 *     busy what counts adds up all the same, until an answer comes.
 *  2. One question is under way at a time, so neither side's buffer fills, however long nobody reads.
 *  3. The question says in what state coved is, of which the answer makes nothing: so a worker knows it without asking.
 *  4. What the worker sends is looked at no further than that it came: one that was taken over can say that it lives,
 *     as it could anyway.
 */
#pragma once

#include "base/clock.h"
#include "wire/pulse.h"

struct pulse_patience {
    usec_t every; /* a question at a time */
    /* Until the first answer: before its loop turns a worker opens its store, and may bring it to a new form. */
    usec_t first;
    usec_t silent; /* between answers, from then on */
};

extern const struct pulse_patience pulse_usual;

struct worker_pulse {
    int fd; /* owned; -1: nobody is asked */
    struct pulse_patience patience;
    usec_t due;    /* monotonic */
    usec_t silent; /* how much time has counted since the question */
    bool is_asked, has_answered;
};

#define PULSE_NONE ((struct worker_pulse){.fd = -1})

/* ret_theirs: the worker's end, yours. The first question comes with the next turn. 0 or -errno. */
int pulse_open(struct worker_pulse *p, const struct pulse_patience *patience, usec_t now, int *ret_theirs) WARN_UNUSED;
void pulse_close(struct worker_pulse *p);

/* Once a turn. False: it has been silent for longer than there is patience. Before `due` there is nothing to do. */
bool pulse_turn(struct worker_pulse *p, usec_t now, enum pulse_state state) WARN_UNUSED;

/* Call it when the socket is readable. False: nothing will come any more. */
bool pulse_heard(struct worker_pulse *p) WARN_UNUSED;

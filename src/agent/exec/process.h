/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that were started for the host, their kept output and who follows it.
 *
 * Theory of operation
 *
 *  1. A process is starting until its status pipe is at its end, then live, then reaped (its first pid is gone), then
 *     done: reaped and all of its output read. Done, it is kept for a while for late followers, then forgotten.
 *  2. Output is read into the ring only as far as process_room() says: WIRE_WINDOW beyond what the slowest follower has
 *     consumed. What was sent to a follower and not consumed is thus still in the ring when the session is lost and
 *     another one attaches.
 *  3. After the reaping, pipes that others still hold are read for `linger` more; then what is in them is taken, and
 *     what comes later is dropped (agent/sink.h).
 */
#pragma once

#include "agent/agent.h"
#include "agent/exec/output.h"
#include "agent/exec/spawn.h"

enum { PROCESS_LIVE_MAX = 1024, PROCESS_ENDED_MAX = 256, PROCESS_FOLLOWERS_MAX = 64, PROCESS_LATE_MAX = 4 };

/* A follower whose END was sent: what the host has acknowledged may still be on its way. */
struct ended_follower {
    uint32_t stream;  /* 0: none, or of a session that is gone */
    uint64_t granted; /* up to this offset */
};

struct agent_process {
    struct agent *agent;
    struct list node;       /* in agent->processes */
    struct list ended_node; /* in agent->ended, once done */
    uint64_t seq;
    pid_t pid;
    uint8_t flags; /* enum wire_proc_flag */
    bool starting, reaped, draining, done;
    bool superseded; /* its pid or tag belongs to a newer one */
    usec_t started;
    char *record; /* owned: tag, cmd, args, env, cwd, user, encoded as WIRE_PROCESSES has them */
    size_t record_bytes;
    struct str tag; /* in record */
    struct output output;
    struct loop_io out[2], in, status;
    struct spawn_launch *launch; /* agent/exec/spawn.h; NULL once it executed */
    size_t drain_bytes;          /* that may still be read while draining */
    struct loop_timer timer;     /* linger, drain, forget */
    struct list followers;       /* struct agent_follower */
    size_t n_followers;
    struct list inputs;  /* agent/exec/input.c */
    bool close_stdin;    /* once the inputs are written */
    struct list waiters; /* agent/exec/control.c: SIGKILLs, answered when it is reaped */
    uint64_t seen;
    struct ended_follower ended_followers[PROCESS_LATE_MAX];
    size_t n_ended_followers; /* in all; the last ones are in the array */
    uint8_t how;              /* enum wire_exit */
    uint32_t code;
};

/* A stream that follows the output (agent/exec/follow.c). */
struct agent_follower {
    struct agent_stream stream;
    struct agent_process *process; /* NULL before it was found */
    struct list node;
    uint64_t start, sent; /* offsets */
    uint64_t granted;     /* credit that came back */
    char *command, *cwd;  /* owned, for EXEC's errors */
};

/*
 * Starts it and puts it into the table; it is `starting` then, and follow_started() or follow_not_started() is called
 * for its followers. Takes `record` (which begins with the tag), and the arena as spawn() does. -errno.
 */
int process_start(struct agent *a, const struct spawn *s, struct arena *arena, char *record, size_t record_bytes,
                  uint8_t flags, struct agent_process **ret_process) WARN_UNUSED;

/* By the request's `process` value; NULL with *f set. An ended one only when asked for. Sets NULL and f->code 0 when it
 * was malformed. */
struct agent_process *process_find(struct agent *a, struct wire_reader *r, bool ended_too, struct failure *f);

void process_follow(struct agent_process *p, struct agent_follower *f);
void process_unfollow(struct agent_follower *f);
void process_follower_ended(struct agent_follower *f); /* its END is about to be sent: credit for it may still come */
/* A CREDIT for a stream that is not open (any more). */
void process_late_credit(struct agent *a, uint32_t stream, uint32_t bytes, bool delivered);
void process_session_gone(struct agent *a);     /* no credit comes for its streams any more */
void process_consumed(struct agent_process *p); /* a follower moved on: read again if there is room now */

bool process_reaped(struct agent *a, pid_t pid, int status); /* false: no process of the table */
void process_forget_all(struct agent *a);                    /* kills them */

/* Called by the table. */
void follow_started(struct agent_follower *f);
void follow_not_started(struct agent_follower *f, const struct spawn_report *report);
void input_ready(struct loop_io *io, uint32_t events);
void input_fail_all(struct agent_process *p, int errnum);
void signal_reaped(struct agent_process *p);

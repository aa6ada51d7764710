/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on files that may take long, or hang with a file system: it is done in a forked child, which writes its results
 * into a pipe; the agent relays them under credit and stays responsive. At most JOB_MAX children at a time, more wait
 * their turn.
 *
 * In the pipe: u8 kind (enum job_message), u32 size, then `size` bytes: the payload of a DATA frame, the tail of the
 * END, or u16 code and text of a failure. The child is as hostile as the files it reads: sizes are checked.
 */
#pragma once

#include "agent/agent.h"
#include "agent/failure.h"
#include "agent/verb.h"
#include "base/buf.h"

enum { JOB_MAX = 64, JOB_MESSAGE_MAX = 128 * 1024 };

struct job_stream;

/* Runs in the child. Data goes to `out` followed by job_flush(); what is in `out` at the end is the tail. -1: failed,
 * *f says why. */
typedef int (*job_fn)(struct job_stream *js, struct buf *out, struct failure *f);

struct job_stream { /* begins the stream's object of a verb that uses jobs */
    struct agent_stream stream;
    job_fn run;
    bool has_head;         /* the verb has an empty REPLY */
    int input_fd;          /* plus one, 0: none. The child's standard input; the verb closes it */
    bool may_outlive;      /* the child goes on when the stream is closed */
    struct agent_job *job; /* NULL while it waits */
    struct list waiting;   /* in agent->waiting_jobs */
};

/* For the verb: js->run and the flags are set. Starts it or lets it wait. */
void job_submit(struct job_stream *js);
bool job_stream_produce(struct agent_stream *s);
void job_stream_fini(struct agent_stream *s);

/* In the child: sends what is in `out` as one DATA payload when it is at least `least` bytes. */
void job_flush(struct job_stream *js, struct buf *out, size_t least);

void job_reaped(struct agent *a, pid_t pid);
void job_forget_all(struct agent *a); /* kills them */

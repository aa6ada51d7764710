/* SPDX-License-Identifier: Apache-2.0 */
/* A process as the core follows it, and the record of PROCESSES. Internal to src/sandbox; the theory of operation is in
 * exec.c. */
#pragma once

#include "sandbox/exec/exec_log.h"
#include "sandbox/object.h"

struct process {
    struct sandbox *sb;    /* a reference */
    struct list node;      /* in sb->processes, newest first */
    struct stream *stream; /* the log's: EXEC, or ATTACH after another worker. NULL once it ended */
    struct follow *client; /* shares the EXEC stream */
    struct list follows;   /* struct follow with streams of their own that are known to be this one's */
    uint32_t pid;          /* 0 until REPLY */
    char *tag;             /* NULL: none */
    bool pty, ended, delivered, expired;
    usec_t started; /* monotonic */
    struct exec_log log;
    uint32_t unattended; /* bytes that no client waits for, to be granted by the pace */
    struct loop_alarm pace;
    struct loop_alarm alarm; /* its deadline; once it ended, when it is forgotten */
    usec_t left;             /* until its deadline, while its sandbox stands still; 0: none */
    uint64_t carried;        /* the last event when its beginning was recorded once more; 0: never */
};

/* exec_spec.c */
int exec_spec_check(const struct exec_spec *spec, struct err *err) WARN_UNUSED;
void exec_spec_put(struct buf *b, const struct sandbox *sb, const struct exec_spec *spec);
void exec_spec_describe(const struct exec_spec *spec, struct event_data *d);

/* In the table, without a stream. */
struct process *process_new(struct sandbox *sb, uint64_t cause, struct str tag);
void process_free(struct process *p);
struct process *process_find(struct sandbox *sb, const struct exec_select *which);
void process_arm(struct process *p, usec_t at_mono);  /* its deadline */
void process_on_deadline(struct process *p);          /* exec.c */
void process_ended(struct process *p, bool remember); /* its stream is gone; p may be freed */

/* Follows one that another worker started; head_done: its exec.output is in the log. */
int process_take_over(struct process *p, bool head_done, struct err *err) WARN_UNUSED;

/* The client of one that was taken over and has none: output comes as to exec_start()'s. */
void process_follow(struct process *p, const struct exec_ops *ops, void *ctx, struct follow **ret_follow);

/* One record of PROCESSES. Borrowed from the reader's bytes; lists are walked again with process_strings() and
 * process_pairs(). */
struct process_record {
    uint32_t pid;
    uint8_t flags;
    usec_t started;
    struct str tag, cmd, cwd, user;
    struct wire_reader args, envs;
    uint32_t n_args, n_envs;
    uint64_t output_bytes, seen;
};
/* False at the end, or when it is malformed (r->bad). */
bool process_record_next(struct wire_reader *r, struct process_record *ret_record);

/* Asks for PROCESSES: done gets all records as one run of bytes (valid during the call), or the error. */
struct process_query;
typedef void (*process_query_fn)(void *ctx, struct str records, const struct err *err);
int process_query(struct sandbox *sb, process_query_fn done, void *ctx, struct process_query **ret_query,
                  struct err *err) WARN_UNUSED;
void process_query_cancel(struct process_query *q);
/* From within done: the records are not what they should be. */
void process_query_lie(struct process_query *q);

/* Which process, as every request names it. */
void process_put_select(struct buf *b, const struct exec_select *which);
void process_tell_select(struct event_data *d, const struct exec_select *which);
int process_check_select(const struct exec_select *which, struct err *err) WARN_UNUSED;

/* Sends a signal and does not ask what came of it. */
void process_signal(struct process *p, int signal);

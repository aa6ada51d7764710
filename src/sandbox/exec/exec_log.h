/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the record keeps of one process's output: the first bytes as an exec.output event, the last ones with exec.exit,
 * and, when there is more than both, all of each channel as an artefact (store/artefact.h), which exec.exit names. So a
 * process costs two events and three rows however much it writes. Internal to src/sandbox.
 */
#pragma once

#include "event/event.h"
#include "sandbox/exec/exec.h"
#include "sandbox/loop.h"
#include "store/artefact.h"

enum {
    EXEC_LOG_PACES = 512,
    EXEC_LOG_HEAD_MAX = 4096,
    EXEC_LOG_TAIL_MAX = 4096,
    EXEC_LOG_RUNS_MAX = 32,
    EXEC_LOG_CHANNELS = 3
};

/* So many bytes came at that time after the start. */
struct exec_pace {
    uint32_t ms, bytes;
};

struct exec_log {
    struct sandbox *sb; /* borrowed from the process */
    uint64_t cause;     /* seq of the action */
    uint32_t pid;
    uint64_t base;  /* offset of the first byte that came through here: not 0 after another worker */
    uint64_t bytes; /* that came through here */
    bool head_done, keeps_middle;
    struct buf head;
    struct {
        uint16_t end;
        uint8_t channel;
    } runs[EXEC_LOG_RUNS_MAX]; /* which part of the head belongs to which channel */
    size_t n_runs;
    char *tail; /* ring of EXEC_LOG_TAIL_MAX, of what is not in the head */
    uint64_t tail_bytes;
    struct {
        struct buf pending;             /* of the artefact */
        struct artefact_writer *writer; /* NULL: nothing is written yet */
    } channels[EXEC_LOG_CHANNELS];
    uint64_t skip; /* how much of the output, of all channels, an earlier worker kept */
    uint64_t lost; /* came between what that one kept and what the agent still had */
    struct loop_alarm head_alarm;
    struct exec_pace *paces; /* of a terminal: EXEC_LOG_PACES of them, or NULL */
    size_t n_paces;
    uint32_t pace_ms; /* output that comes closer together counts as one */
    usec_t began;     /* monotonic */
    bool is_taken_over;
};

void exec_log_init(struct exec_log *log, struct sandbox *sb, uint64_t cause);
void exec_log_fini(struct exec_log *log);

/* The process was started by an earlier worker; output comes again from offset `base`, and the head may have been
 * recorded. */
void exec_log_resume(struct exec_log *log, uint64_t base, bool head_done);

void exec_log_output(struct exec_log *log, enum wire_channel channel, struct str bytes);

/* Its end; err: it is not known how (or it never began). */
void exec_log_exit(struct exec_log *log, const struct exec_exit *exit, usec_t duration, bool expired,
                   enum event_grade grade, const struct err *err);

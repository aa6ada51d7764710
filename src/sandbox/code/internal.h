/* SPDX-License-Identifier: Apache-2.0 */
/* What code.c (contexts), runner.c and cell.c of this folder share; code.h is what others see, and code.c's theory of
 * operation holds for all three. */
#pragma once

#include "sandbox/code/code.h"
#include "sandbox/exec/process.h"
#include "sandbox/quota.h"

enum { CODE_SAID_MAX = 200 };

#define CODE_TAG "code:" /* of a runner's process, before its context's id, language and directory */

struct code {
    struct sandbox *sb;
    struct list contexts; /* in order of creation */
    size_t n;
    const char *directory; /* of the runners; in the sandbox's variables, as the languages */
    struct str languages;  /* blanks between them */
    bool has_first;        /* the contexts that are there from the beginning */
};

struct code_making {
    struct code_context *of;
    code_made_fn done;
    void *ctx;
};

struct code_context {
    struct code *code;
    struct list node;
    char id[CODE_ID_MAX + 1];
    const char *language;
    char *cwd, *tag;
    struct follow *follow; /* NULL: no runner */
    uint32_t pid;
    bool is_ready, is_default;
    bool restarts, removed; /* its runner is on its way out, for this reason */
    bool is_cut;            /* it was taken over: what it says may begin within a frame */
    struct buf rest;        /* a frame that has begun */
    struct charge charge;   /* of a large one */
    char carry[2][4];       /* of STDOUT and STDERR: a character that has begun */
    size_t n_carry[2];
    size_t unacked;
    uint32_t oom_kills; /* of the sandbox when its cell was sent; a sample may see one before its end is told */
    struct list cells;
    struct exec_call *feed;
    struct code_making *making;
    struct loop_alarm again;
    char said[CODE_SAID_MAX + 1]; /* by the runner itself, on its stderr */
};

struct code_cell {
    struct code_context *context;
    struct list node;
    uint64_t number, seq;
    code_event_fn fn; /* NULL: its client has gone */
    void *ctx;
    struct buf request;                               /* until it is sent */
    bool sent, is_slow, is_interrupted, is_restarted; /* its context was, under it */
    bool has_failed, has_text;                        /* which is in `told` */
    uint64_t bytes[2];
    uint32_t count, n_results;
    struct event_data told;
    struct buf results;
};

/* code.c */
struct code *code_of(struct sandbox *sb);
const char *code_known(struct str name); /* by a name that clients use; NULL */
bool code_has(const struct code *code, const char *language);
int code_usable(struct sandbox *sb, const struct actor *actor, struct err *err) WARN_UNUSED;
struct code_context *context_new(struct code *code, struct str id, const char *language, struct str cwd);
void context_free(struct code_context *x);
struct code_context *context_find(struct code *code, struct str id);
struct code_context *context_default(struct code *code, const char *language); /* made where there is none */

/* runner.c. waits: it need not be quick, but what starts it is to have all that a cell may want loaded. */
int context_start(struct code_context *x, const struct actor *actor, bool waits, struct err *err) WARN_UNUSED;
void context_signal(struct code_context *x, int signal);
void context_interrupt(struct code_context *x); /* SIGINT, or SIGKILL to one on its way out, until its cell has ended */
void context_kill_later(struct code_context *x);
void context_over(struct code_context *x, const struct err *why); /* it has no runner any more, or never got one */
void code_adopt(struct code *code); /* runners of a worker before us, or that went on without us */

/* cell.c */
void code_next(struct code_context *x); /* sends the first cell, if it can be sent */
/* Of nothing and for nobody: when it ends, what the runner was at before has ended, too. */
void cell_probe(struct code_context *x);
bool cell_tell(struct code_cell *cell, enum code_event_kind kind, const struct code_frame *f);
void cell_end(struct code_cell *cell);
void cell_fail(struct code_cell *cell, const char *name, const char *value);
void cell_note_error(struct code_cell *cell, const struct code_frame *f);
void cell_note_result(struct code_cell *cell, const struct code_frame *f);

/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this façade share. Private to src/api/fusion. */
#pragma once

#include "api/fusion/fusion.h"
#include "api/kit/file_body.h"
#include "base/json.h"
#include "sandbox/code/code.h"

enum {
    FUSION_BODY_MAX = 16 << 20,
    FUSION_OUTPUT_MAX = 4 << 20,      /* of stdout and of stderr; what comes after is dropped */
    FUSION_FETCH_MAX = 16 << 20,      /* of all files that are fetched */
    FUSION_WAITING_MAX = 1000,        /* calls of a tenant that wait for their turn; twice as many of all */
    FUSION_WAITING_BYTES = 256 << 20, /* of their bodies */
    FUSION_TIME_MAX_MS = 3600 * 1000, /* of one command */
    FUSION_CELLS_MAX = 1000,
    FUSION_ESCAPED_MAX = 2 * FUSION_OUTPUT_MAX,
    FUSION_ANSWER_MAX = 4 * FUSION_ESCAPED_MAX + 2 * FUSION_FETCH_MAX,
    FUSION_TOLD_MAX = 6 * FUSION_OUTPUT_MAX + FUSION_FETCH_MAX + 64 * FUSION_CELLS_MAX, /* of cells, escaped */
};

struct fusion {
    struct facade facade;
    bool is_open;
    uid_t owner_uid;
    unsigned slots, running; /* runs that have a sandbox at a time */
    struct list waiting;     /* of struct fusion_run, in order of arrival */
    struct list busy;        /* those with a sandbox */
    size_t n_waiting, waiting_bytes;
    bool is_dispatching;
};

static inline struct fusion *fusion_of(const struct call *c)
{
    return container_of(c->facade, struct fusion, facade);
}

/* ---- languages.c ---- */

struct fusion_language {
    const char *name, *file; /* what the code is written to */
    const char *compile;     /* NULL: nothing to compile. Words; with a "$" or "*" in it, a shell reads it */
    const char *run;
};
const struct fusion_language *fusion_language_find(struct str name); /* NULL: there is none such */

/* ---- run.c: one program, in a sandbox of its own ---- */

struct fusion_result {  /* of a command */
    const char *status; /* NULL: it was not run */
    bool has_code;
    int code;
    usec_t started, took;
    struct buf out, err;
};

struct fusion_run {
    struct call *call;
    void (*done)(struct call *c, struct fusion_run *r);
    void (*fini)(struct fusion_run *r); /* the call is over; NULL: nothing to let go of */
    /* What is asked. All borrowed from the call. */
    const struct fusion_language *language; /* NULL: cells */
    struct str code, stdin_text;            /* stdin_text.p NULL: none */
    json_t *files, *fetch, *cells;
    uint64_t compile_ms, run_ms, cell_ms, memory_bytes;
    /* How far it is. */
    int stage;
    void *file;  /* the next of files */
    size_t next; /* of fetch, of cells */
    struct sandbox *sb;
    struct follow *follow;
    struct exec_call *input;
    uint32_t pid;
    size_t given;          /* of stdin; of all files that are fetched */
    struct file_body body; /* of the file that is written or fetched */
    struct fusion_result compiled, ran;
    json_t *fetched;
    char message[512]; /* what Cove couldn't do; "": all was done */
    char sandbox[ID_SANDBOX_LEN + 1];
    struct list node; /* in fusion.waiting or .busy */
    size_t body_bytes;
    bool has_slot, is_init;
    /* Cells (jupyter.c). */
    struct code_cell *cell;
    struct buf told; /* the answer's "cells", as JSON without brackets; so are the last two */
    struct buf cell_out, cell_err, cell_display, cell_errors;
    size_t cell_bytes, shown_bytes; /* of all cells */
    usec_t until;
};

/* done comes once, in a later turn, unless the call ends before. r: zeroed but for what is asked; c->state from here
 * on. */
void fusion_run_start(struct call *c, struct fusion_run *r);
void fusion_run_forget(struct fusion_run *r); /* after done, before it is used again */
void fusion_run_step(struct call *c);         /* what comes next */

/* ---- ask.c: a run as JSON ---- */

/* Reads what /run_code and /run_jupyter have in common, and the members of one of them. False: answered. */
bool fusion_run_read(struct call *c, const json_t *body, bool is_cells, struct fusion_run *r);
/* "compile_timeout" and "run_timeout", in seconds; a program's otherwise. */
int fusion_run_times(const json_t *body, double compile_s, double run_s, struct fusion_run *r,
                     struct err *err) WARN_UNUSED;
bool fusion_run_succeeded(const struct fusion_run *r);
/* The answer to /run_code or /run_jupyter, with so many bytes of each output, escaped. */
void fusion_run_append(struct buf *b, const struct fusion_run *r, size_t most);
bool fusion_result_is_bad(const struct fusion_result *result); /* it was run, and did not end with 0 */

/* jupyter.c: 1: all are done, 0: the next runs, -1 and *err. */
int fusion_cells_next(struct fusion_run *r, struct err *err);
void fusion_cells_fini(struct fusion_run *r);

/* ---- judge.c ---- */

/* The program in a model's answer; allocated in the arena. Exposed for the fuzzer. */
struct str fusion_extract(struct arena *arena, struct str completion, struct str language);
/* Are these lines what was expected, but for case, blanks at their ends and the last digits of numbers? */
bool fusion_same_output(struct str got, struct str expected);
route_handler fusion_list_datasets, fusion_list_ids, fusion_prompts, fusion_prompt, fusion_submit, fusion_metrics,
    fusion_metrics_function;

extern const struct route fusion_routes[];
extern const size_t fusion_n_routes;

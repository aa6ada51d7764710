/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `cove eval` has whatever it judges: problems and samples as JSON Lines, workers, a file of results that a later
 * run goes on with, pass@k. A kind (humaneval.c, patch.c) says what its files' members are called and judges one
 * sample.
 */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "cli/service.h"

struct eval_sample {
    const char *task, *answer; /* borrowed */
    const json_t *problem;
    char digest[33];    /* of the problem and the answer */
    const char *broken; /* why it can't be judged, which is no fault of the sample; NULL: it can */
    size_t image_of;    /* patch.c: 1 + the sample for which its image is made; 0: it is there */
    bool is_done, has_passed;
};

struct eval;

struct eval_kind {
    const char *name;
    const char *const *members; /* strings that each problem has; the first names it */
    size_t n_members;
    const char *answer, *own; /* the member that is judged, of a sample; of a problem, where no samples are given */
    uint64_t timeout_s, timeout_max_s;
    const char *missing; /* what to say when there is no --problems */

    /* May be NULL: is this problem one? And what is made before the first sample is judged. -1: ctx->err. */
    int (*check)(struct eval *e, const json_t *problem);
    int (*prepare)(struct eval *e);
    /*
     * {"passed", "result", ...}; or {"broken": why} where it is the problem that can't be judged. In a process of its
     * own. NULL: ctx->err, which ends the run.
     */
    json_t *(*judge)(struct eval *e, struct service *s, const struct eval_sample *sample);
};

struct eval {
    struct context *ctx;
    const struct eval_kind *kind;
    const char *samples_path, *problems_path, *output_path, *template, *repos, *test_cmd;
    uint64_t n, timeout_s, jobs;
    struct arena arena;
    json_t *problems, *given; /* arrays: the lines of the files; given NULL: the problems' own answers */
    struct map by_task;       /* task -> problem */
    struct eval_sample *samples;
    size_t n_samples, n_done, n_broken;
    char *results_path;
    int results;
};

extern const struct eval_kind eval_humaneval, eval_patch;

/* The whole of it: an exit code. */
int eval_start(struct eval *e);

/*
 * Does something for each number below n, several at a time, in processes of their own: `work` makes an object of it
 * there (NULL: ctx->err), `note` takes it here, with its line. A number for which `skip` is true is left out. -1:
 * ctx->err, also when one of these failed.
 */
struct eval_pass {
    size_t n;
    bool (*skip)(const struct eval *e, size_t i);
    json_t *(*work)(struct eval *e, struct service *s, size_t i);
    int (*note)(struct eval *e, size_t i, const json_t *told, struct str line);
};
int eval_each(struct eval *e, const struct eval_pass *pass) WARN_UNUSED;

void eval_digest(struct str bytes, char ret_digest[static 33]);

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/eval/eval.h"

#include <unistd.h>

enum { JOBS_MAX = 64 };

static int eval_run(struct context *ctx)
{
    static const struct eval_kind *const kinds[] = {&eval_humaneval, &eval_patch};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct eval e = {.ctx = ctx, .template = "base", .n = UINT32_MAX, .arena = ARENA_INIT, .results = -1};
    const struct flag_into into[] = {
        {"samples", .text = &e.samples_path},
        {"problems", .text = &e.problems_path},
        {"output", .text = &e.output_path},
        {"repos", .text = &e.repos},
        {"template", .text = &e.template},
        {"test-cmd", .text = &e.test_cmd},
        {"timeout", .number = &e.timeout_s, .kind = FLAG_NUMBER, .least = 1, .wanted = "a number of seconds"},
        {"n", .number = &e.n, .kind = FLAG_NUMBER, .least = 1, .most = UINT32_MAX - 1, .wanted = "a number from 1"},
        {"jobs", .number = &e.jobs, .kind = FLAG_NUMBER, .least = 1, .most = JOBS_MAX,
         .wanted = "a number from 1 to 64"},
        {.name = NULL}};
    e.jobs = (uint64_t)MIN(MAX(cpus, 1L) * 2, (long)JOBS_MAX);
    if (context_read(ctx, into) < 0)
        return context_exit(ctx);
    for (size_t i = 0; i < ARRAY_SIZE(kinds) && context_operands(ctx) == 1; i++) {
        if (strcmp(ctx->argv[ctx->argi], kinds[i]->name) == 0)
            e.kind = kinds[i];
    }
    if (!e.kind)
        return context_usage(ctx, "say what to judge: humaneval or patch");
    if (context_check_form(ctx, e.kind->name) != STATUS_OK)
        return STATUS_USAGE;
    if (e.timeout_s > e.kind->timeout_max_s)
        return context_usage(ctx, "--timeout: the most is %llu", (unsigned long long)e.kind->timeout_max_s);
    e.timeout_s = e.timeout_s ? e.timeout_s : e.kind->timeout_s;
    return e.problems_path ? eval_start(&e) : context_usage(ctx, "%s", e.kind->missing);
}

static const struct flag eval_flags[] = {
    {0, "problems", "FILE", "The problems: JSON Lines, compressed by gzip or not."},
    {0, "samples", "FILE",
     "The samples to judge: JSON Lines with \"task_id\" and \"completion\", or \"instance_id\" and "
     "\"model_patch\". Default: the problems' own solutions."},
    {'n', "n", "N", "The first N problems only."},
    {0, "timeout", "SECONDS", "How long a sample may run (default: humaneval 10, patch 1800)."},
    {0, "jobs", "N", "How many samples run at a time (default: two for each processor)."},
    {0, "output", "FILE", "Where results go (default: the samples' name and \"_results.jsonl\")."},
    {0, "repos", "DIR",
     "patch: The directory of the repositories: DIR/OWNER/NAME, DIR/OWNER__NAME or DIR/NAME. Without it, the "
     "template has the repository in /testbed."},
    {0, "template", "NAME", "patch: The template of problems that name none. Default: base."},
    {0, "test-cmd", "COMMAND", "patch: The test command of problems that have none."},
};

const struct command cmd_eval = {
    .name = "eval",
    .summary = "judge a model's programs and patches, each in a sandbox of its own",
    .text = &text_eval,
    .operands = "=humaneval patch",
    COMMAND_FLAGS(eval_flags),
    .run = eval_run,
};

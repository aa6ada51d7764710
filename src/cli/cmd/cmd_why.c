/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/env/provenance.h"

static const struct flag why_flags[] = {
    {0, "repo", "DIR", "The repository. Default: the one that the current directory is in."},
};

static int why_run(struct context *ctx)
{
    const char *repo = ".";
    uint64_t line = 0;
    if (CONTEXT_READ(ctx, {"repo", .text = &repo}) < 0)
        return context_exit(ctx);
    const char *what = context_operands(ctx) == 1 ? ctx->argv[ctx->argi] : "", *colon = strrchr(what, ':');
    if (!colon || colon == what || str_to_u64(str_of(colon + 1), &line) < 0 || line == 0 || line > INT32_MAX)
        return context_usage(ctx, "write a file of the repository and a line: src/main.c:12");
    AUTO_FREE char *file = mem_strndup(what, (size_t)(colon - what));
    return provenance_why(ctx, repo, file, line);
}

const struct command cmd_why = {
    .name = "why",
    .summary = "show which command a line of code comes from",
    .synopsis = "FILE:LINE [--repo DIR]",
    .description =
        "Finds the commit that the line comes from, and prints its note (refs/notes/cove, written when an "
        "environment's commits are received): the command before it, who ran that, the policy, and which hosts had "
        "been reached and refused until then. Then it asks the service whether the sandbox's record is intact and "
        "names this commit and the note's digest: a note that was changed or copied to another commit doesn't count.\n\nFILE is relative to the top of the repository, as in Git, or to DIR. "
        "Share notes like all refs: git push origin refs/notes/cove. git config notes.cove.mergeStrategy "
        "cat_sort_uniq merges those of several people.",
    .exit_status = " 0  the commit came out of an environment, and the record bears the note out\n"
                   " 1  it did not, or the record is gone or another one; what was found is printed\n"
                   " 2  the command line is wrong",
    .examples = "cove why src/main.c:12\ncove why README.md:1 --json",
    .operands = "path",
    COMMAND_FLAGS(why_flags),
    .run = why_run,
};

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
    .text = &text_why,
    .operands = "path",
    COMMAND_FLAGS(why_flags),
    .run = why_run,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/each.h"

static const struct flag rm_flags[] = {
    {'a', "all", NULL, "Removes every sandbox of the service."},
};

static int rm_run(struct context *ctx)
{
    bool all = false;
    if (CONTEXT_READ(ctx, {"all", .on = &all}) < 0)
        return context_exit(ctx);
    return each_sandbox(
        ctx, &(struct each){.method = "DELETE", .doing = "removing", .done = "removed", .all = all ? "" : NULL});
}

const struct command cmd_rm = {
    .name = "rm",
    .summary = "end and remove sandboxes",
    .text = &text_rm,
    .operands = "id",
    COMMAND_FLAGS(rm_flags),
    .run = rm_run,
};

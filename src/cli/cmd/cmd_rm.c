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
    .synopsis = "ID...\n--all",
    .description =
        "Ends the sandboxes with everything that runs in them, and removes their files. Their event logs stay ('cove "
        "log'). Prints the id of each removed sandbox. If one can't be removed, the others still are.",
    .exit_status = " 0  all were removed\n 1  one was not; stderr says which and why\n 2  the command line is wrong",
    .examples = "cove rm i3k\n"
                "cove rm --all",
    .operands = "id",
    COMMAND_FLAGS(rm_flags),
    .run = rm_run,
};

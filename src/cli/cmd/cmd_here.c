/* SPDX-License-Identifier: Apache-2.0 */
/* cove-here does it, a small program that starts sooner than this one; here are its help and completion. */
#include "base/mem.h"
#include "cli/cmd/commands.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { FLAG_CONTROL = 256, FLAG_VIOLATIONS };

static const struct flag flags[] = {
    {'s', 's', "settings", "FILE", "settings in the format of sandbox-runtime (~/.srt-settings.json)"},
    {'c', 'c', "command", "STRING", "a line for bash in the place of COMMAND"},
    {FLAG_CONTROL, 0, "control-fd", "N", "read further settings from this descriptor, one JSON object a line"},
    {FLAG_VIOLATIONS, 0, "violations-fd", "N", "write what was refused to this descriptor, one JSON object a line"},
    {'d', 'd', "debug", NULL, "accepted for sandbox-runtime's sake; does nothing"},
};

static int run(struct context *ctx)
{
    const char *value;
    char self[PATH_MAX];
    int id;
    while ((id = context_next_flag(ctx, &value)) > 0)
        ;
    if (id == FLAGS_STOP)
        return context_exit(ctx);
    if (ctx->json)
        return context_usage(ctx, "the output is the command's: there is no --json");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(self, '/');
    AUTO_FREE char *program = mem_printf("%.*s/cove-here", slash ? (int)(slash - self) : 0, self);
    (void)execv(program, ctx->argv);
    (void)err_errno(&ctx->err, errno, "execute %s", program);
    return context_fail(ctx, STATUS_COVE);
}

const struct command cmd_here = {
    .name = "here",
    .summary = "run a command on this machine's files, behind a boundary",
    .synopsis = "[OPTION]... [--] [COMMAND [ARG...]]",
    .description =
        "Runs a command of this machine without a container, a service or root: it may read everything, write nothing and reach no network, except what the "
        "settings allow. What would obey it afterwards (.git/hooks, .bashrc, .mcp.json and others) stays unwritable in any case.\n\n"
        "What the kernel can't enforce is an error, and nothing is run. docs/HERE.md has the settings.",
    .exit_status = " N    the command's; 128+S, and death by the same signal, when signal S ended it\n"
                   " 2    the command line is wrong\n"
                   " 125  the boundary can't be made as asked, and nothing was run\n"
                   " 126  the command can't be executed\n"
                   " 127  the command is not there",
    .examples = "cove here -- make test\n"
                "cove here -s settings.json -c 'npm ci && npm test'",
    .operands = "command|path",
    COMMAND_FLAGS(flags),
    .is_local = true,
    .flags_end_at_operand = true,
    .run = run,
};

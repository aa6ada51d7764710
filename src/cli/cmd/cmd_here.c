/* SPDX-License-Identifier: Apache-2.0 */
/* cove-here does it, and is executed before this program would be (front.c). What it can't read on its command line
 * comes here, for help and hints. */
#include "cli/cmd/commands.h"

static const struct flag here_flags[] = {
    {'s', "settings", "FILE", "Settings in the format of sandbox-runtime (~/.srt-settings.json)."},
    {'c', "command", "STRING", "A bash command line instead of COMMAND."},
    {'w', "write", "PATH", "Lets the command write there, also to what is below. May be given several times."},
    {0, "allow", "HOST", "Lets the command connect there: a name, *.name, with :PORT. May be given several times."},
    {0, "control-fd", "N", "Read further settings from this descriptor, one JSON object a line."},
    {0, "violations-fd", "N", "Write what was refused to this descriptor, one JSON object a line."},
    {'d', "debug", NULL, "Accepted for compatibility with sandbox-runtime; does nothing."},
};

static int here_run(struct context *ctx)
{
    const char *ignored;
    bool is_ignored;
    if (CONTEXT_READ(ctx, {"debug", .on = &is_ignored}, {"", .text = &ignored}) < 0)
        return context_exit(ctx);
    return context_usage(ctx, ctx->json ? "--json is not supported: the output is the command's"
                                        : "options are written in full");
}

const struct command cmd_here = {
    .name = "here",
    .summary = "run a command on this machine's files, sandboxed",
    .text = &text_here,
    .operands = "command|path",
    COMMAND_FLAGS(here_flags),
    .is_local = true,
    .flags_end_at_operand = true,
    .run = here_run,
};

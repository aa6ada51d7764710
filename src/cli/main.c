/* SPDX-License-Identifier: Apache-2.0 */
/* cove: the command line of the service. */
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/command.h"
#include "cli/habits.h"
#include "cli/help.h"
#include "config/config.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &cmd_run,     &cmd_env,    &cmd_ls,        &cmd_exec,    &cmd_cp,         &cmd_rm,       &cmd_pause,
    &cmd_resume,  &cmd_here,   &cmd_snapshot,  &cmd_fork,    &cmd_diff,       &cmd_volume,   &cmd_logs,
    &cmd_log,     &cmd_events, &cmd_evidence,  &cmd_replay,  &cmd_net,        &cmd_key,      &cmd_tenant,
    &cmd_policy,  &cmd_guard,  &cmd_approvals, &cmd_approve, &cmd_deny,       &cmd_secret,   &cmd_url,
    &cmd_timeout, &cmd_mcp,    &cmd_ps,        &cmd_stats,   &cmd_domain,     &cmd_template, &cmd_pool,
    &cmd_warm,    &cmd_gc,     &cmd_doctor,    &cmd_version, &cmd_completion, &cmd_help,     NULL,
};

/* Output that could not be written, as to a full disk, is a failure; a reader that left, as `head` does, is none. */
static int finish(struct context *ctx, int status)
{
    errno = 0;
    bool failed = fflush(stdout) < 0;
    const int why = errno ? errno : EIO; /* of a piece that could not be written before, nobody knows any more */
    if ((!failed && !ferror(stdout)) || why == EPIPE || status != STATUS_OK)
        return status;
    *ctx->hint = '\0';
    (void)err_errno(&ctx->err, why, "write the output");
    return context_fail(ctx, STATUS_FAILED);
}

static int no_command(const char *name, char *const *rest)
{
    struct context ctx = {.json = strcmp(name, "--json") == 0};
    for (; *rest && strcmp(*rest, "--") != 0; rest++)
        ctx.json |= strcmp(*rest, "--json") == 0;
    (void)err_set(&ctx.err, ERR_INVALID_ARGUMENT, "there is no command \"%.64s\"", name);
    const char *habit = habit_of_command(name);
    (void)snprintf(ctx.hint, sizeof(ctx.hint), "%s",
                   habit            ? habit
                   : name[0] == '-' ? "options come behind the command: cove ls --json"
                                    : "'cove help' lists them");
    return context_fail(&ctx, STATUS_USAGE);
}

int main(int argc, char **argv)
{
    if (fd_standard(O_RDONLY) < 0) /* writing to what came closed fails, and that is told */
        return STATUS_COVE;
    json_set_alloc_funcs(mem_alloc, mem_free);
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        struct context nothing = {0};
        help_overview(commands, argc < 2 ? stderr : stdout);
        return finish(&nothing, argc < 2 ? STATUS_USAGE : STATUS_OK);
    }
    if (strcmp(name, "--version") == 0)
        name = "version";

    const struct command *command = command_find(commands, name);
    if (!command)
        return no_command(name, argv + 2);
    struct context ctx = {.command = command, .commands = commands, .argc = argc - 1, .argv = argv + 1};
    int status = command->run(&ctx);
    config_free(ctx.config);
    return finish(&ctx, status);
}

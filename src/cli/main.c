/* SPDX-License-Identifier: Apache-2.0 */
/* cove: the command line of the service. */
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/command.h"
#include "cli/habits.h"
#include "cli/help.h"
#include "config/config.h"

#include <fcntl.h>

#define COMMAND_ADDRESS(name) &cmd_##name,
static const struct command *const commands[] = {COMMANDS(COMMAND_ADDRESS) NULL};

/* Output that could not be written, as to a full disk, is a failure; a reader that left, as `head` does, is none. */
static int main_finish(struct context *ctx, int status)
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
    const char *habit = habit_of_command(name), *meant = NULL;
    for (size_t i = 0; !habit && !meant && commands[i]; i++)
        meant = habit_is_slip(str_of(name), commands[i]->name) ? commands[i]->name : NULL;
    if (meant)
        (void)snprintf(ctx.hint, sizeof(ctx.hint), "did you mean 'cove %s'?", meant);
    else
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
    const char *called = strrchr(argc ? argv[0] : "", '/');
    const bool is_docker = argc && strcmp(called ? called + 1 : argv[0], "docker") == 0;
    const char *name = is_docker ? "docker" : argc > 1 ? argv[1] : "";
    if (!name[0] || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        struct context nothing = {0};
        help_overview(commands, !name[0] ? stderr : stdout);
        return main_finish(&nothing, !name[0] ? STATUS_USAGE : STATUS_OK);
    }
    if (strcmp(name, "--version") == 0)
        name = "version";

    const struct command *command = command_find(commands, name);
    if (!command)
        return no_command(name, argv + 2);
    struct context ctx = {
        .command = command, .commands = commands, .argc = argc - !is_docker, .argv = argv + !is_docker};
    int status = command->run(&ctx);
    config_free(ctx.config);
    return main_finish(&ctx, status);
}

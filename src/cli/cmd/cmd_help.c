/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "cli/cmd/commands.h"
#include "cli/help.h"
#include "cli/print.h"

static json_t *help_describe(const struct command *c)
{
    json_t *flags = json_array();
    const struct flag *f;
    for (size_t i = 0; (f = command_flag(c, i)); i++) {
        char letter[2] = {f->letter, '\0'};
        (void)json_array_append_new(flags,
                                    json_pack("{s:s, s:s?, s:s?, s:s}", "name", f->name, "letter",
                                              *letter ? letter : NULL, "argument", f->argument, "help", f->help));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", c->name, "summary", c->summary, "synopsis", c->text->synopsis,
                     "description", c->text->description, "options", flags);
}

static int help_run(struct context *ctx)
{
    if (context_read(ctx, NULL) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) > 1)
        return context_usage(ctx, "it takes one command, not also \"%.64s\"", ctx->argv[ctx->argi + 1]);
    const char *name = context_operands(ctx) > 0 ? ctx->argv[ctx->argi] : NULL;
    const struct command *found = name ? command_find(ctx->commands, name) : NULL;
    if (name && strcmp(name, "exit-codes") == 0) {
        help_exit_codes(stdout);
        return STATUS_OK;
    }
    if (name && !found)
        return context_usage(ctx, "there is no command \"%.64s\"; 'cove help' lists them", name);
    if (ctx->json) {
        json_t *answer = found ? help_describe(found) : json_array();
        for (size_t i = 0; !found && ctx->commands[i]; i++)
            (void)json_array_append_new(answer, help_describe(ctx->commands[i]));
        print_json(answer);
        json_decref(answer);
    } else if (found) {
        help_command(found, stdout);
    } else {
        help_overview(ctx->commands, stdout);
    }
    return STATUS_OK;
}

const struct command cmd_help = {
    .name = "help",
    .summary = "explain a command, or the exit codes",
    .text = &text_help,
    .operands = "subcommand",
    .is_local = true,
    .run = help_run,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/service.h"
#include "cli/terminal.h"

#include <unistd.h>

static const struct flag flags[] = {
    {'f', 'f', "follow", NULL, "Goes on with the lines to come, until the sandbox ends."},
};

static const char *text_of(const json_t *line, const char *name)
{
    const char *text = json_string_value(json_object_get(line, name));
    return text ? text : "";
}

static void print_line(const json_t *line, bool is_tty)
{
    struct str message = str_of(text_of(line, "message"));
    while (message.n > 0 && message.p[message.n - 1] == '\n')
        message.n--;
    (void)printf("%s  %-5s  ", text_of(line, "at"), text_of(line, "level"));
    terminal_print(stdout, is_tty, message);
    (void)fputc('\n', stdout);
}

static int run(struct context *ctx)
{
    const char *value;
    bool follows = false, is_tty = isatty(STDOUT_FILENO) == 1;
    int flag, r;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        follows = true;
    if (flag < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 1)
        return context_usage(ctx, context_operands(ctx) ? "one sandbox at a time" : "the sandbox's id is missing");

    AUTO_FREE char *id = NULL, *target = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, ctx->argv[ctx->argi], &id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    target = service_target(id, "/logs?follow=%d", follows);
    if (service_stream(s, "GET", target) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (follows)
        http_client_timeout(service_client(s), -1);

    struct str text;
    while ((r = service_line(s, &text)) > 0) {
        AUTO_JSON json_t *line = json_loadb(text.p, text.n, 0, NULL);
        if (ctx->json)
            (void)printf("%.*s\n", STR_ARG(text));
        else
            print_line(line, is_tty);
        if (follows && fflush(stdout) < 0)
            break;
    }
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

const struct command cmd_logs = {
    .name = "logs",
    .summary = "print what a sandbox's processes wrote and what became of it",
    .synopsis = "[-f] ID",
    .description =
        "Prints the lines of the sandbox's log: its start and end, its processes and what they wrote, oldest first. Long output is kept in "
        "part only. 'cove log' has every action, with who did it.\n"
        "\n"
        "With --json one object for each line: at, level, logger, message.",
    .examples = "cove logs i3k\n"
                "cove logs -f i3k",
    .operands = "id",
    COMMAND_FLAGS(flags),
    .run = run,
};

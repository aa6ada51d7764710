/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/service.h"
#include "cli/things.h"

#include <unistd.h>

enum { PS_COMMAND_MAX = 4096, PS_COMMAND_SHOWN = 60 };

static void ps_command(struct table *t, const json_t *p, const char *name)
{
    AUTO_BUF struct buf command = BUF_INIT(PS_COMMAND_MAX);
    JSON_FOREACH_AT (i, word, json_object_get(p, name)) {
        (void)buf_append_cstr(&command, i ? " " : "");
        (void)buf_append_cstr(&command, json_string_value(word) ? json_string_value(word) : "");
    }
    table_add_cut(t, buf_str(&command), isatty(STDOUT_FILENO) == 1 ? PS_COMMAND_SHOWN : SIZE_MAX);
}

static int ps_run(struct context *ctx)
{
    static const struct things_column columns[] = {{"PID", "pid", things_number},
                                                   {"USER", "user", NULL},
                                                   {"AGE", "started_at", things_ago},
                                                   {"COMMAND", "cmd", ps_command}};
    if (context_read_one(ctx, NULL) < 0)
        return context_exit(ctx);
    AUTO_JSON json_t *answer = NULL;
    if (service_ask_sandbox(ctx, "GET", "/processes", NULL, "listing processes", NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    return things_table(ctx, json_object_get(answer, "processes"), columns, ARRAY_SIZE(columns));
}

const struct command cmd_ps = {
    .name = "ps",
    .summary = "list the commands that run in a sandbox",
    .text = &text_ps,
    .operands = "id",
    .run = ps_run,
};

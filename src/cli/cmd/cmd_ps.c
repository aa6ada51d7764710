/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"

#include <unistd.h>

enum { PS_COMMAND_MAX = 4096, PS_COMMAND_SHOWN = 60 };

static void ps_add_row(struct table *t, const json_t *p, bool is_tty)
{
    AUTO_BUF struct buf command = BUF_INIT(PS_COMMAND_MAX);
    json_t *word;
    size_t i;
    json_array_foreach(json_object_get(p, "cmd"), i, word)
    {
        (void)buf_append_cstr(&command, i ? " " : "");
        (void)buf_append_cstr(&command, json_string_value(word) ? json_string_value(word) : "");
    }
    table_addf(t, "%lld", (long long)json_integer_value(json_object_get(p, "pid")));
    table_add(t, str_of(things_text(p, "user")));
    things_add_time(t, p, "started_at", true);
    table_add_cut(t, buf_str(&command), is_tty ? PS_COMMAND_SHOWN : SIZE_MAX);
}

static int ps_run(struct context *ctx)
{
    static const char *const heads[] = {"PID", "USER", "AGE", "COMMAND"};
    const char *value;
    if (context_next_flag(ctx, &value) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 1)
        return context_usage(ctx, context_operands(ctx) ? "one sandbox at a time"
                                                        : "the sandbox's id is missing; 'cove ls' lists sandboxes");
    AUTO_FREE char *id = NULL;
    AUTO_JSON json_t *answer = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, ctx->argv[ctx->argi], &id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *target = service_target(id, "/processes");
    if (service_call(s, "GET", target, NULL, "listing processes", &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    const json_t *all = json_object_get(answer, "processes");
    if (ctx->json) {
        print_json(all);
        return STATUS_OK;
    }
    struct table t;
    json_t *one;
    size_t i;
    if (json_array_size(all) == 0)
        return STATUS_OK;
    table_heads(&t, heads, ARRAY_SIZE(heads));
    json_array_foreach(all, i, one)
    {
        ps_add_row(&t, one, isatty(STDOUT_FILENO) == 1);
    }
    table_print(&t, stdout);
    table_fini(&t);
    return STATUS_OK;
}

const struct command cmd_ps = {
    .name = "ps",
    .summary = "list the commands that run in a sandbox",
    .synopsis = "ID",
    .description =
        "Lists the commands that 'cove run', 'cove exec', the SDKs or the template started in the sandbox and that still run: pid, user, how "
        "long it has run, and the command with its arguments. What those started themselves is not listed: 'cove exec ID -- ps aux' "
        "shows that, where the template has ps.\n"
        "\n"
        "With --json all fields of each.",
    .examples = "cove ps i3k\n"
                "cove ps --json i3k | jq -r '.[].pid'",
    .operands = "id",
    .run = ps_run,
};

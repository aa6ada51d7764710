/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"
#include "config/units.h"

#include <unistd.h>

static const struct flag flags[] = {
    {'a', 'a', "all", NULL, "Lists those that ended last, too, up to 500 of them, behind those that live."},
    {'q', 'q', "quiet", NULL, "Prints ids only, one a line."},
};

static const char *text_of(const json_t *sandbox, const char *name)
{
    const char *text = json_string_value(json_object_get(sandbox, name));
    return text ? text : "-";
}

enum { LABELS_MOST = 60 };

static void add_row(struct table *t, const json_t *s)
{
    char memory[UNIT_TEXT_MAX];
    AUTO_BUF struct buf labels = BUF_INIT(4096);
    const char *key;
    json_t *value;
    const char *alias = json_string_value(json_object_get(s, "template_alias"));
    unit_format_size((uint64_t)json_integer_value(json_object_get(s, "memory_bytes")), memory);
    table_add(t, str_of(text_of(s, "id")));
    const char *cause = json_string_value(json_object_get(s, "end_cause"));
    table_addf(t, "%s%s%s%s", text_of(s, "state"), json_object_get(s, "stuck") ? ", stuck" : "", cause ? ", " : "",
               cause                                         ? cause
               : json_is_false(json_object_get(s, "secure")) ? ", open"
                                                             : "");
    table_add(t, str_of(alias ? alias : text_of(s, "template")));
    things_add_time(t, s, "started_at", true);
    things_add_time(t, s, "end_at", false);
    table_add(t, str_of(memory));
    table_addf(t, "%g", (double)json_integer_value(json_object_get(s, "cpu_milli")) / 1000);
    json_object_foreach(json_object_get(s, "metadata"), key, value)
    {
        buf_printf(&labels, "%s%s=%s", buf_len(&labels) ? " " : "", key,
                   json_string_value(value) ? json_string_value(value) : "");
    }
    table_add_cut(t, buf_len(&labels) ? buf_str(&labels) : STR("-"),
                  isatty(STDOUT_FILENO) == 1 ? LABELS_MOST : SIZE_MAX);
}

static int run(struct context *ctx)
{
    const char *value;
    bool quiet = false, has_ended = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        *(flag == 'q' ? &quiet : &has_ended) = true;
    if (flag < 0)
        return context_exit(ctx);
    if (context_operands(ctx) > 0)
        return context_usage(ctx, "%s: it takes no operand", ctx->argv[ctx->argi]);

    AUTO_JSON json_t *all = NULL, *ended = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_sandboxes(s, &all) < 0 || (has_ended && service_ended(s, &ended) < 0))
        return context_fail(ctx, STATUS_FAILED);
    if (ended)
        (void)json_array_extend(all, ended);

    size_t i;
    json_t *one;
    if (ctx->json) {
        print_json(all);
        return STATUS_OK;
    }
    if (quiet) {
        json_array_foreach(all, i, one)
        {
            print_line(text_of(one, "id"));
        }
        return STATUS_OK;
    }
    if (json_array_size(all) == 0) {
        if (isatty(STDOUT_FILENO))
            (void)fputs("there is no sandbox; 'cove run' makes one\n", stderr);
        return STATUS_OK;
    }
    static const char *const heads[] = {"ID", "STATE", "TEMPLATE", "AGE", "ENDS IN", "MEMORY", "CPUS", "METADATA"};
    struct table t;
    table_heads(&t, heads, ARRAY_SIZE(heads));
    json_array_foreach(all, i, one)
    {
        add_row(&t, one);
    }
    table_print(&t, stdout);
    table_fini(&t);
    return STATUS_OK;
}

const struct command cmd_ls = {
    .name = "ls",
    .summary = "list the sandboxes",
    .synopsis = "[-a] [-q]",
    .description =
        "Lists the sandboxes, running and paused, the newest first: id, state, template, how long it has run, when it ends by itself (- for never), "
        "its limits and its labels, of which a terminal is shown the first 60 bytes. \"open\" behind the state: it has no access token, so that its id is enough to "
        "run commands in it. \"stuck\": somebody does the same in it again and again ('cove help guard'). With --json all fields of each.\n"
        "\n"
        "With -a also those that have ended, and why: killed, timeout, exited, signaled, oom, lost, shutdown or failed. Their logs are still there "
        "('cove logs', 'cove log'); their files are not.",
    .examples = "cove ls\n"
                "cove ls -a\n"
                "cove ls -q | xargs -r cove rm",
    .operands = "",
    COMMAND_FLAGS(flags),
    .run = run,
};

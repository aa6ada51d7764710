/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/service.h"
#include "cli/terminal.h"
#include "config/units.h"

#include <unistd.h>

static const struct flag flags[] = {
    {'q', 'q', "quiet", NULL, "Prints ids only, one a line."},
};

static const char *text_of(const json_t *sandbox, const char *name)
{
    const char *text = json_string_value(json_object_get(sandbox, name));
    return text ? text : "-";
}

/* "3m" from now to then, or from then to now; "-" when there is no such time. */
static void add_distance(struct table *t, const json_t *sandbox, const char *name, bool is_past)
{
    usec_t at, now = clock_real();
    char text[UNIT_TEXT_MAX];
    const char *value = json_string_value(json_object_get(sandbox, name));
    if (!value || clock_parse(str_of(value), &at) < 0) {
        table_add(t, STR("-"));
        return;
    }
    uint64_t distance = is_past ? now - MIN(at, now) : at - MIN(at, now);
    unit_format_duration(distance / USEC_PER_SEC * 1000, text);
    table_add(t, distance < USEC_PER_SEC ? STR("0s") : str_of(text));
}

static void add_row(struct table *t, const json_t *s)
{
    char memory[UNIT_TEXT_MAX];
    AUTO_BUF struct buf labels = BUF_INIT(4096);
    const char *key;
    json_t *value;
    const char *alias = json_string_value(json_object_get(s, "template_alias"));
    unit_format_size((uint64_t)json_integer_value(json_object_get(s, "memory_bytes")), memory);
    table_add(t, str_of(text_of(s, "id")));
    table_add(t, str_of(text_of(s, "state")));
    table_add(t, str_of(alias ? alias : text_of(s, "template")));
    add_distance(t, s, "started_at", true);
    add_distance(t, s, "end_at", false);
    table_add(t, str_of(memory));
    table_addf(t, "%g", (double)json_integer_value(json_object_get(s, "cpu_milli")) / 1000);
    json_object_foreach(json_object_get(s, "metadata"), key, value)
    {
        buf_printf(&labels, "%s%s=%s", buf_len(&labels) ? " " : "", key,
                   json_string_value(value) ? json_string_value(value) : "");
    }
    table_add(t, buf_len(&labels) ? buf_str(&labels) : STR("-"));
}

static int run(struct context *ctx)
{
    const char *value;
    bool quiet = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        quiet = true;
    if (flag < 0)
        return context_exit(ctx);
    if (context_operands(ctx) > 0)
        return context_usage(ctx, "%s: it takes no operand", ctx->argv[ctx->argi]);

    AUTO_JSON json_t *all = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_sandboxes(s, &all) < 0)
        return context_fail(ctx, STATUS_FAILED);

    size_t i;
    json_t *one;
    if (ctx->json) {
        (void)json_dumpf(all, stdout, JSON_INDENT(2));
        (void)fputc('\n', stdout);
        return STATUS_OK;
    }
    if (quiet) {
        json_array_foreach(all, i, one)(void) printf("%s\n", text_of(one, "id"));
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
    .synopsis = "[-q]",
    .description =
        "Lists the sandboxes, running and paused, the newest first: id, state, template, how long it has run, when it ends by itself (- for never), "
        "its limits and its labels. With --json all fields of each.",
    .examples = "cove ls\n"
                "cove ls -q | xargs cove rm",
    .operands = "",
    COMMAND_FLAGS(flags),
    .run = run,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"
#include "http/client/docker_names.h"

#include <unistd.h>

static const struct flag ls_flags[] = {
    {'a', "all", NULL, "Adds up to 500 ended sandboxes after the others, latest first."},
    {'q', "quiet", NULL, "Prints ids only, one a line."},
};

enum { LABELS_MOST = 60 };

static void ls_state(struct table *t, const json_t *s, const char *name)
{
    const char *cause = json_string_value(json_object_get(s, "end_cause"));
    table_addf(t, "%s%s%s%s%s", things_text(s, name), json_is_true(json_object_get(s, "on_disk")) ? ", on disk" : "",
               json_object_get(s, "stuck") ? ", stuck" : "", cause ? ", " : "",
               cause                                         ? cause
               : json_is_false(json_object_get(s, "secure")) ? ", open"
                                                             : "");
}

static void ls_template(struct table *t, const json_t *s, const char *name)
{
    const char *alias = json_string_value(json_object_get(s, "template_alias"));
    table_add(t, str_of(alias ? alias : things_text(s, name)));
}

/* What Cove itself notes there says nothing to people, but for what they have called it. */
static bool ls_is_internal(const char *label)
{
    static const char *const prefixes[] = {"cove.", "docker.", "opensandbox.io/"};
    bool is_internal = false;
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        is_internal |= str_starts(str_of(label), str_of(prefixes[i]));
    return is_internal && strcmp(label, "cove.env") != 0 && strcmp(label, DOCKER_NAME) != 0;
}

static void ls_labels(struct table *t, const json_t *s, const char *name)
{
    AUTO_BUF struct buf labels = BUF_INIT(4096);
    JSON_FOREACH_MEMBER (key, value, json_object_get(s, name))
        if (!ls_is_internal(key))
            buf_printf(&labels, "%s%s=%s", buf_len(&labels) ? " " : "", key,
                       json_string_value(value) ? json_string_value(value) : "");
    table_add_cut(t, buf_len(&labels) ? buf_str(&labels) : STR("-"),
                  isatty(STDOUT_FILENO) == 1 ? LABELS_MOST : SIZE_MAX);
}

static const struct things_column ls_columns[] = {{"ID", "id", NULL},
                                                  {"STATE", "state", ls_state},
                                                  {"TEMPLATE", "template", ls_template},
                                                  {"TIER", "tier", NULL},
                                                  {"AGE", "started_at", things_ago},
                                                  {"ENDS IN", "end_at", things_until},
                                                  {"MEMORY", "memory_bytes", things_size},
                                                  {"CPUS", "cpu_milli", things_cpus},
                                                  {"LABELS", "metadata", ls_labels}};

static int ls_run(struct context *ctx)
{
    bool quiet = false, has_ended = false;
    if (CONTEXT_READ_ALL(ctx, {"all", .on = &has_ended}, {"quiet", .on = &quiet}) < 0)
        return context_exit(ctx);

    AUTO_JSON json_t *all = NULL, *ended = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_sandboxes(s, &all) < 0 || (has_ended && service_ended(s, &ended) < 0))
        return context_fail(ctx, STATUS_FAILED);
    if (ended)
        (void)json_array_extend(all, ended);

    if (!ctx->json && quiet) {
        JSON_FOREACH (one, all)
            print_line(things_text(one, "id"));
        return STATUS_OK;
    }
    if (!ctx->json && json_array_size(all) == 0 && isatty(STDOUT_FILENO))
        (void)fputs("there are no sandboxes; 'cove run' makes one\n", stderr);
    return things_table(ctx, all, ls_columns, ARRAY_SIZE(ls_columns));
}

const struct command cmd_ls = {
    .name = "ls",
    .summary = "list the sandboxes",
    .text = &text_ls,
    .operands = "",
    COMMAND_FLAGS(ls_flags),
    .run = ls_run,
};

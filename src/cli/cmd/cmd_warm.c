/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/print.h"
#include "cli/things.h"

enum { COUNT_MAX = 64 };

static const struct flag warm_flags[] = {
    {'q', "quiet", NULL, "Prints nothing on success; of the list, templates only."},
};

static const struct things_column columns[] = {
    {"TEMPLATE", "template", NULL}, {"KEPT", "count", things_number}, {"READY", "ready", things_number}};

static const struct things warm_things = {
    .one = "template of which sandboxes are kept ready",
    .all = "warm",
    .name = "template",
    .how_made = "'cove warm TEMPLATE N' keeps N",
    .columns = columns,
    .n_columns = ARRAY_SIZE(columns),
};

static int warm_run(struct context *ctx)
{
    uint64_t count;
    bool quiet = false;
    if (CONTEXT_READ(ctx, {"quiet", .on = &quiet}) < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    if (n == 0 || (n == 1 && context_is_word(ctx->argv[ctx->argi], "ls")))
        return things_list(ctx, &warm_things, "/cove/v1/warm", quiet);
    if (n != 2)
        return context_usage(ctx, "give a template and how many: cove warm base 4");
    const char *template = ctx->argv[ctx->argi], *number = ctx->argv[ctx->argi + 1];
    if (str_to_u64(str_of(number), &count) < 0 || count > COUNT_MAX)
        return context_usage(ctx, "%s: write a number from 0 to %d", number, COUNT_MAX);
    AUTO_JSON json_t *body = json_pack("{s:s,s:I}", "template", template, "count", (json_int_t)count);
    if (!body)
        return context_usage(ctx, "the template's name must be UTF-8");
    if (service_ask(ctx, "POST", "/cove/v1/warm", body, "setting it", NULL) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(body);
    else if (!quiet && count)
        (void)printf("%llu of %s %s kept ready from now on\n", (unsigned long long)count, template,
                     count == 1 ? "is" : "are");
    else if (!quiet)
        (void)printf("none of %s is kept ready any more\n", template);
    return STATUS_OK;
}

const struct command cmd_warm = {
    .name = "warm",
    .summary = "keep sandboxes of a template ready",
    .text = &text_warm,
    .operands = "=ls",
    COMMAND_FLAGS(warm_flags),
    .run = warm_run,
};

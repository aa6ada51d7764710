/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/print.h"
#include "cli/service.h"

#include <stdio.h>

enum { COUNT_MAX = 64 };

static const struct flag flags[] = {
    {'q', "quiet", NULL, "Prints nothing on success."},
};

static int warm_run(struct context *ctx)
{
    uint64_t count;
    bool quiet = false;
    if (CONTEXT_READ(ctx, {"quiet", .on = &quiet}) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 2)
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
    .synopsis = "[-q] TEMPLATE N",
    .description =
        "Keeps N sandboxes of TEMPLATE ready, with their start command running, so that a create that asks for "
        "nothing beyond the template gets one at once. They are made in the background, replaced when they are "
        "taken, and made again after a restart of the service. Each costs the memory of an idle sandbox, and was "
        "never used by anybody. 0 keeps none.\n\nN is at most 64. With --json: what was set.",
    .examples = "cove warm base 8\ncove warm base 0",
    .operands = "",
    COMMAND_FLAGS(flags),
    .run = warm_run,
};

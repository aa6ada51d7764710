/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/print.h"
#include "cli/service.h"
#include "config/units.h"

static const struct flag timeout_flags[] = {
    {0, "extend", NULL, "Never makes it end earlier than it would."},
};

static int timeout_run(struct context *ctx)
{
    bool extends = false;
    uint64_t ms = 0;
    if (CONTEXT_READ(ctx, {"extend", .on = &extends}) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 2)
        return context_usage(ctx, "give a sandbox and a time");
    const char *time = ctx->argv[ctx->argi + 1];
    if (unit_parse_duration(str_of(time), &ms) < 0 || ms > INT64_MAX)
        return context_usage(ctx, "%s: write a time such as 90s, 5m or 1h30m", time);

    AUTO_FREE char *id = NULL;
    AUTO_JSON json_t *sandbox = NULL,
                     *body = json_pack("{s:I,s:b}", "timeout_ms", (json_int_t)ms, "extend_only", extends);
    if (service_ask_sandbox(ctx, "POST", "/timeout", body, NULL, &id, &sandbox) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json) {
        print_json(sandbox);
        return STATUS_OK;
    }
    const char *end = json_string_value(json_object_get(sandbox, "end_at"));
    (void)printf("%s ends at %s\n", id, end ? end : "-");
    return STATUS_OK;
}

const struct command cmd_timeout = {
    .name = "timeout",
    .summary = "set when a sandbox ends",
    .text = &text_timeout,
    .operands = "id",
    COMMAND_FLAGS(timeout_flags),
    .run = timeout_run,
};

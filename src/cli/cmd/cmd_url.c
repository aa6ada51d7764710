/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/print.h"
#include "cli/service.h"

static int url_run(struct context *ctx)
{
    uint64_t port = 0;
    if (context_read(ctx, NULL) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 2)
        return context_usage(ctx, "give a sandbox and a port");
    const char *text = ctx->argv[ctx->argi + 1];
    if (str_to_u64(str_of(text), &port) < 0 || port == 0 || port > UINT16_MAX)
        return context_usage(ctx, "%s: a port is a number from 1 to 65535", text);

    AUTO_FREE char *id = NULL;
    AUTO_JSON json_t *info = NULL, *sandbox = NULL;
    if (service_ask_sandbox(ctx, "GET", "", NULL, NULL, &id, &sandbox) < 0 ||
        service_ask(ctx, "GET", "/cove/v1/info", NULL, NULL, &info) < 0)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *url = mem_printf("%s://%u-%s.%s/", service_text(info, "scheme"), (unsigned)port,
                                     service_text(sandbox, "port_alias"), service_text(info, "domain"));
    if (ctx->json) {
        AUTO_JSON json_t *answer = json_pack("{s:s,s:I,s:s}", "sandbox", id, "port", (json_int_t)port, "url", url);
        print_json(answer);
    } else {
        print_line(url);
    }
    return STATUS_OK;
}

const struct command cmd_url = {
    .name = "url",
    .summary = "print the address of a sandbox's port",
    .text = &text_url,
    .operands = "id",
    .run = url_run,
};

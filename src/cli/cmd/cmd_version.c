/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"

static int version_run(struct context *ctx)
{
    if (context_read_all(ctx, NULL) < 0)
        return context_exit(ctx);

    /* A service that does not run is no failure here. */
    AUTO_JSON json_t *info = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    bool answered = s && service_call(s, "GET", "/cove/v1/info", NULL, NULL, &info) == 0;
    const char *version = json_string_value(json_object_get(info, "version"));
    if (ctx->json) {
        AUTO_JSON json_t *answer = json_pack("{s:s, s:O?}", "cove", COVE_VERSION, "service", info);
        print_json(answer);
        return STATUS_OK;
    }
    (void)printf("cove %s\n", COVE_VERSION);
    if (answered)
        terminal_line(stdout, "service %s, %lld sandboxes", version ? version : "?",
                      (long long)json_integer_value(json_object_get(info, "sandboxes")));
    else
        terminal_line(stdout, "service: %s", ctx->err.msg);
    return STATUS_OK;
}

const struct command cmd_version = {
    .name = "version",
    .summary = "print the versions of the command and of the service",
    .text = &text_version,
    .operands = "",
    .run = version_run,
};

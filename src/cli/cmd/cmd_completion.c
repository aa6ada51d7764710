/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/completion.h"

static int completion_run(struct context *ctx)
{
    if (context_read(ctx, NULL) < 0)
        return context_exit(ctx);
    AUTO_BUF struct buf script = BUF_INIT(1 << 20), json = BUF_INIT(8 << 20);
    const char *shell = context_operands(ctx) == 1 ? ctx->argv[ctx->argi] : "";
    if (completion_write(shell, ctx->commands, &script) < 0)
        return context_usage(ctx, "the shell is missing: bash, zsh or fish");
    if (ctx->json) {
        buf_printf(&json, "{\"shell\":\"%s\",\"script\":", shell);
        buf_append_json_string(&json, buf_str(&script));
        buf_append_cstr(&json, "}\n");
    }
    struct buf *out = ctx->json ? &json : &script;
    (void)fwrite(buf_data(out), 1, buf_len(out), stdout);
    return STATUS_OK;
}

const struct command cmd_completion = {
    .name = "completion",
    .summary = "print a completion script for a shell",
    .text = &text_completion,
    .operands = "shell",
    .is_local = true,
    .run = completion_run,
};

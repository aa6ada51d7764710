/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "config/config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_MAX = 512 };

static int print_key(const struct context *ctx, struct str key)
{
    AUTO_BUF struct buf b = BUF_INIT(8 * KEY_MAX);
    if (ctx->json) {
        buf_append_cstr(&b, "{\"key\":");
        buf_append_json_string(&b, key);
        buf_append_char(&b, '}');
    } else {
        buf_append_str(&b, key);
    }
    buf_append_char(&b, '\n');
    (void)fwrite(buf_data(&b), 1, buf_len(&b), stdout);
    return STATUS_OK;
}

static int run(struct context *ctx)
{
    if (context_take_nothing(ctx) < 0)
        return context_exit(ctx);

    const char *given = getenv("COVE_API_KEY");
    if (given && *given)
        return print_key(ctx, str_of(given));
    const struct config *config = context_config(ctx);
    if (!config)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *path = mem_printf("%s/key", config->state_dir);
    AUTO_BUF struct buf key = BUF_INIT(KEY_MAX);
    int r = fd_read_file(AT_FDCWD, path, &key);
    if (r < 0) {
        (void)err_errno(&ctx->err, r, "read the API key %s", path);
        (void)snprintf(ctx->hint, sizeof(ctx->hint), "%s",
                       r == -ENOENT
                           ? "it is made when the service starts for the first time: 'systemctl start cove', or 'make "
                             "start' in the source directory"
                       : r == -EACCES ? "it is for root: use sudo"
                                      : "");
        return context_fail(ctx, STATUS_FAILED);
    }
    struct str line = STR_NULL, rest = buf_str(&key);
    (void)str_split(&rest, '\n', &line);
    return print_key(ctx, line);
}

const struct command cmd_key = {
    .name = "key",
    .summary = "print the API key",
    .synopsis = "",
    .description =
        "Prints the key that clients over TCP send, such as the E2B SDKs (E2B_API_KEY). It was made when the service started for "
        "the first time and is kept in the state directory; COVE_API_KEY overrides it, here as in the service.",
    .examples = "export E2B_API_KEY=$(cove key)",
    .operands = "",
    .is_local = true,
    .run = run,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/copy.h"
#include "cli/service.h"

#include <stdio.h>

static const struct flag flags[] = {
    {'u', 'u', "user", "NAME", "Reads and writes in the sandbox as this user. Default: user."},
};

/* The files of one that has ended are gone, whatever their names were; the files' routes say it of the file alone. */
static int check_alive(struct context *ctx, struct service *s, const char *id)
{
    AUTO_FREE char *target = service_target(id, "%s", "");
    AUTO_JSON json_t *sandbox = NULL;
    if (service_call(s, "GET", target, NULL, NULL, &sandbox) < 0)
        return -1;
    const char *cause = json_string_value(json_object_get(sandbox, "end_cause"));
    const char *state = json_string_value(json_object_get(sandbox, "state"));
    if (cause || (state && strcmp(state, "stopping") == 0)) {
        (void)snprintf(ctx->hint, sizeof(ctx->hint), "what is still to be read of it is its log: cove log %s", id);
        return err_set(&ctx->err, ERR_NOT_FOUND, "sandbox %s has ended, and its files are gone", id);
    }
    if (state && strcmp(state, "paused") == 0) {
        (void)snprintf(ctx->hint, sizeof(ctx->hint), "'cove resume %s' lets it go on", id);
        return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "sandbox %s is paused", id);
    }
    return 0;
}

static int copy_between(struct context *ctx, const char *user, const struct place *from, const struct place *to)
{
    AUTO_FREE char *id = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, from->is_remote ? from->id : to->id, &id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (check_alive(ctx, s, id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    struct copy c = {.ctx = ctx, .service = s, .id = id, .user = user};
    int r = from->is_remote ? copy_from_sandbox(&c, from->path, to->path) : copy_to_sandbox(&c, from->path, to->path);
    if (r < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json && (to->is_remote || strcmp(to->path, "-") != 0))
        (void)printf("{\"sandbox\":\"%s\",\"bytes\":%llu}\n", id, (unsigned long long)c.bytes);
    return STATUS_OK;
}

static int run(struct context *ctx)
{
    const char *value, *user = NULL;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        user = value;
    if (flag < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 2)
        return context_usage(ctx, "give a source and a destination");
    struct place from, to;
    place_parse(ctx->argv[ctx->argi], &from);
    place_parse(ctx->argv[ctx->argi + 1], &to);
    int status;
    if (from.is_remote == to.is_remote)
        status = context_usage(ctx, from.is_remote ? "one side must be here: copy in two steps"
                                                   : "one side must be in a sandbox: ID:PATH");
    else
        status = copy_between(ctx, user, &from, &to);
    place_fini(&from);
    place_fini(&to);
    return status;
}

const struct command cmd_cp = {
    .name = "cp",
    .summary = "copy files to and from a sandbox",
    .synopsis = "[-u NAME] PATH ID:PATH\n[-u NAME] ID:PATH PATH",
    .description =
        "Copies a file, or a directory with all that is in it. A path in the sandbox that does not begin with / is below the user's home; - "
        "stands for standard input or output. When the destination is a directory, or ends with /, the copy gets the source's name in it. "
        "Missing directories are made in the sandbox. Write ./a:b for a file here whose name holds a colon.\n"
        "\n"
        "Permissions are kept, owners are not. A directory that comes out of a sandbox is not trusted: nothing is written outside of the "
        "destination. A file is there under its name only when all of it is.\n"
        "\n"
        "With --json the sandbox's id, and the bytes when a single file was copied.",
    .examples = "cove cp main.py i3k:\n"
                "cove cp src i3k:/home/user/project/\n"
                "cove cp i3k:report.pdf .\n"
                "curl -s https://example.org/data | cove cp - i3k:data",
    .operands = "file",
    COMMAND_FLAGS(flags),
    .run = run,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/alive.h"
#include "cli/exec/terminal.h"
#include "cli/files/copy.h"
#include "config/units.h"

#include <sys/stat.h>
#include <unistd.h>

static const struct flag cp_flags[] = {
    {'u', "user", "NAME", "The owner of new files in the sandbox. Default: user."},
    {'q', "quiet", NULL, "Prints nothing on success."},
    {'r', "recursive", NULL, "For who is used to it: a directory is copied whole in any case."},
};

/* What failed for one of these reasons may have done so because the sandbox stands still. */
static bool may_be_the_pause(enum err_code code)
{
    return code == ERR_UNAVAILABLE || code == ERR_ABORTED || code == ERR_UNKNOWN || code == ERR_FAILED_PRECONDITION ||
           code == ERR_INTERNAL || code == ERR_DEADLINE_EXCEEDED;
}

static void say_done(const struct context *ctx, uint64_t bytes)
{
    char size[UNIT_TEXT_MAX];
    unit_format_size(bytes, size);
    AUTO_FREE char *told = bytes ? mem_printf(" (%s)", size) : mem_strdup(""); /* a tree's bytes nobody counts */
    terminal_line(stdout, "copied %s to %s%s", ctx->argv[ctx->argi], ctx->argv[ctx->argi + 1], told);
}

static int copy_between(struct context *ctx, const char *user, bool quiet, const struct copy_place *from,
                        const struct copy_place *to)
{
    AUTO_FREE char *id = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, from->is_remote ? from->id : to->id, &id) < 0 || alive_check(ctx, s, id, false) < 0)
        return context_fail(ctx, STATUS_FAILED);
    struct copy c = {.ctx = ctx, .service = s, .id = id, .user = user};
    int r = from->is_remote ? copy_from_sandbox(&c, from->path, to->path) : copy_to_sandbox(&c, from->path, to->path);
    if (r < 0) {
        if (may_be_the_pause(ctx->err.code))
            alive_explain_pause(ctx, id, "this was copied");
        return context_fail(ctx, STATUS_FAILED);
    }
    if (!to->is_remote && strcmp(to->path, "-") == 0)
        return STATUS_OK;
    if (ctx->json)
        (void)printf("{\"sandbox\":\"%s\",\"bytes\":%llu}\n", id, (unsigned long long)c.bytes);
    else if (!quiet)
        say_done(ctx, c.bytes);
    return STATUS_OK;
}

/* What a sandbox holds is not spread over a directory that was meant to take it under a name. */
static bool would_spread(const struct copy_place *from, const struct copy_place *to)
{
    struct stat st;
    return from->is_remote && place_has_no_name(from) && strcmp(to->path, "-") != 0 && stat(to->path, &st) == 0 &&
           S_ISDIR(st.st_mode);
}

static int refuse_to_spread(struct context *ctx)
{
    const char *from = ctx->argv[ctx->argi], *to = ctx->argv[ctx->argi + 1];
    return context_usage(ctx, "%s has no name of its own; say where to put it: cove cp %s %s%sbox", from, from, to,
                         str_ends(str_of(to), STR("/")) ? "" : "/");
}

static int cp_run(struct context *ctx)
{
    const char *user = NULL;
    bool quiet = false, ignored;
    if (CONTEXT_READ(ctx, {"user", .text = &user}, {"quiet", .on = &quiet}, {"recursive", .on = &ignored}) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 2)
        return context_usage(ctx, "give a source and a destination");
    struct copy_place from, to;
    place_parse(ctx->argv[ctx->argi], &from);
    place_parse(ctx->argv[ctx->argi + 1], &to);
    int status;
    if (from.is_remote == to.is_remote)
        status = context_usage(ctx, from.is_remote ? "one side must be on this machine: copy in two steps"
                                                   : "one side must be in a sandbox: ID:PATH");
    else if (would_spread(&from, &to))
        status = refuse_to_spread(ctx);
    else
        status = copy_between(ctx, user, quiet, &from, &to);
    place_fini(&from);
    place_fini(&to);
    return status;
}

const struct command cmd_cp = {
    .name = "cp",
    .summary = "copy files to and from a sandbox",
    .text = &text_cp,
    .operands = "file",
    COMMAND_FLAGS(cp_flags),
    .run = cp_run,
};

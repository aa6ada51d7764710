/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/alive.h"
#include "cli/exec/terminal.h"
#include "cli/files/copy.h"
#include "config/units.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct flag flags[] = {
    {'u', 'u', "user", "NAME", "What is new in the sandbox belongs to this user. Default: user."},
    {'q', 'q', "quiet", NULL, "Says nothing when it worked."},
};

/* What failed for one of these reasons may have done so because the sandbox stands still. */
static bool may_be_the_pause(enum err_code code)
{
    return code == ERR_UNAVAILABLE || code == ERR_ABORTED || code == ERR_UNKNOWN || code == ERR_FAILED_PRECONDITION ||
           code == ERR_INTERNAL || code == ERR_DEADLINE_EXCEEDED;
}

static void say_done(const struct context *ctx, uint64_t bytes)
{
    bool is_tty = isatty(STDOUT_FILENO) == 1;
    char size[UNIT_TEXT_MAX];
    unit_format_size(bytes, size);
    (void)fputs("copied ", stdout);
    terminal_print(stdout, is_tty, str_of(ctx->argv[ctx->argi]));
    (void)fputs(" to ", stdout);
    terminal_print(stdout, is_tty, str_of(ctx->argv[ctx->argi + 1]));
    (void)printf(bytes ? " (%s)\n" : "\n", size); /* a tree's bytes nobody counts */
}

static int copy_between(struct context *ctx, const char *user, bool quiet, const struct place *from,
                        const struct place *to)
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
static bool would_spread(const struct place *from, const struct place *to)
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

static int run(struct context *ctx)
{
    const char *value, *user = NULL;
    bool quiet = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        if (flag == 'q')
            quiet = true;
        else
            user = value;
    }
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
    .synopsis = "[-q] [-u NAME] PATH ID:PATH\n[-q] [-u NAME] ID:PATH PATH",
    .description =
        "Copies a file, or a directory with all that is in it. A path in the sandbox that does not begin with / is below the user's home; - "
        "stands for standard input or output. When the destination is a directory, or ends with /, the copy gets the source's name in it. "
        "ID:, ID:., ID:.. and ID:/ have no name: the destination here is then a directory that is not there yet; ID:src/. "
        "says that the content of src is meant. Missing directories are made in the sandbox. Write ./a:b for a file here whose name holds a colon.\n"
        "\n"
        "Permissions are kept, less what the umask takes here; owners are not. A single file is read and written in the sandbox whoever may; a directory with the rights of the "
        "user (-u root for all). A directory that comes out of a sandbox is not trusted: nothing is written outside of the "
        "destination, and directories that are there already keep their permissions. A file is there under its name only when all of it is.\n"
        "\n"
        "What was copied is said on stdout, unless that is where it went. With --json the sandbox's id, and the bytes when a single file was copied.",
    .exit_status = " 0  all of it was copied\n"
                   " 1  it was not; stderr says why. Of a sandbox that was paused meanwhile it says so:\n"
                   "    resume it and run cp again. A pause that keeps its memory only holds the copy\n"
                   "    up when it is resumed within 90 s\n"
                   " 2  the command line is wrong",
    .examples = "cove cp main.py i3k:\n"
                "cove cp src i3k:/home/user/project/\n"
                "cove cp i3k:report.pdf .\n"
                "cove cp i3k: ./box\n"
                "curl -s https://example.org/data | cove cp - i3k:data",
    .operands = "file",
    COMMAND_FLAGS(flags),
    .run = run,
};

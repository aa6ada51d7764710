/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/size_flag.h"
#include "cli/things.h"

#include <unistd.h>

enum { FLAG_SIZE = 256, SIZE_LEAST = 1 << 20 };

static const struct flag flags[] = {
    {FLAG_SIZE, 0, "size", "SIZE", "create: its maximum size: 2GiB. Default: limited only by the pool."},
    {'q', 'q', "quiet", NULL, "ls: prints names only, one a line."},
};

static int volume_create(struct context *ctx, const char *name, uint64_t size)
{
    AUTO_JSON json_t *body = json_pack("{s:s,s:I}", "name", name, "limit_bytes", (json_int_t)size), *made = NULL;
    if (!body)
        return context_usage(ctx, "the name must be UTF-8");
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_call(s, "POST", "/cove/v1/volumes", body, "making a volume", &made) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(made);
    else
        print_line(things_text(made, "name"));
    return STATUS_OK;
}

static bool is_elsewhere(const json_t *one)
{
    return json_is_false(json_object_get(one, "in_pool"));
}

static void volume_warn(const json_t *all)
{
    bool is_tty = isatty(STDERR_FILENO) == 1;
    const json_t *elsewhere = NULL;
    char others[32] = "";
    size_t i, n = 0;
    json_t *one;
    json_array_foreach(all, i, one)
    {
        if (is_elsewhere(one) && !n++)
            elsewhere = one;
    }
    if (!n)
        return;
    if (n > 1)
        (void)snprintf(others, sizeof(others), " and %zu more", n - 1);
    (void)fputs("cove volume: ", stderr);
    terminal_print(stderr, is_tty, str_of(things_text(elsewhere, "name")));
    (void)fprintf(stderr,
                  "%s can't be used: not in this pool, but made in another one, or taken away from it\n"
                  "  start the service with that pool again (pool.kind, COVE_POOL), or give them up with "
                  "'cove volume rm'\n",
                  others);
}

static void volume_used(struct table *t, const json_t *one, const char *name)
{
    if (is_elsewhere(one))
        table_add(t, STR("not in pool"));
    else
        things_size(t, one, name);
}

static const struct things_column columns[] = {{"NAME", "name", NULL},
                                               {"ID", "id", NULL},
                                               {"AGE", "created_at", things_ago},
                                               {"SIZE", "used_bytes", volume_used},
                                               {"LIMIT", "limit_bytes", things_size},
                                               {"MOUNTED IN", "mounted", things_number}};

static const struct things volumes = {
    .one = "volume",
    .all = "volumes",
    .name = "name",
    .how_made = "'cove volume create NAME' makes one",
    .how_free = "'cove rm' ends the sandboxes that have it mounted",
    .remove = "/cove/v1/volumes/",
    .columns = columns,
    .n_columns = ARRAY_SIZE(columns),
    .warn = volume_warn,
};

static int volume_list(struct context *ctx, bool quiet)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    return s ? things_list(ctx, s, &volumes, quiet ? "/cove/v1/volumes" : "/cove/v1/volumes?usage=true", quiet)
             : context_fail(ctx, STATUS_FAILED);
}

static int volume_run(struct context *ctx)
{
    const char *value;
    bool quiet = false;
    uint64_t size = 0;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        if (flag == 'q')
            quiet = true;
        else if (size_flag_parse(ctx, "size", value, SIZE_LEAST, &size) < 0)
            return STATUS_USAGE;
    }
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    char *const *operands = ctx->argv + ctx->argi;
    const char *what = n ? operands[0] : "";
    bool creates = strcmp(what, "create") == 0, lists = strcmp(what, "ls") == 0;
    if (n && context_check_form(ctx, what) != STATUS_OK)
        return STATUS_USAGE;
    if (creates)
        return n == 2 ? volume_create(ctx, operands[1], size) : context_usage(ctx, "create takes one name");
    if (lists)
        return n == 1 ? volume_list(ctx, quiet) : context_usage(ctx, "ls takes no operand");
    if (strcmp(what, "rm") == 0)
        return n > 1 ? things_remove(ctx, &volumes, operands + 1, n - 1)
                     : context_usage(ctx, "the volume's name is missing");
    return context_usage(ctx, n ? "there is create, ls and rm, but no \"%.32s\"" : "what to do? create, ls or rm%s",
                         what);
}

const struct command cmd_volume = {
    .name = "volume",
    .summary = "create, list and remove volumes",
    .synopsis = "create NAME [--size SIZE]\nls [-q]\nrm NAME...",
    .description =
        "A volume is a named directory that outlives sandboxes. 'cove run --volume NAME:/PATH' mounts it, into "
        "several sandboxes at a time if you want, and all of them see each other's changes. A new volume belongs to "
        "the sandbox's user.\n\ncreate prints the name: up to 63 letters, digits, '.', '_' and '-', not beginning "
        "with '-'. ls shows how much each contains (- if the pool does not know; used_bytes or null with --json), "
        "and which are not in the current pool (in_pool): these can't be used until the service has their pool "
        "again. rm removes volumes with everything in them, and refuses one that a sandbox has mounted.",
    .exit_status = " 0  it worked\n 1  it did not; stderr says why\n 2  the command line is wrong",
    .examples = "cove volume create cache --size 2GiB\n"
                "cove run --volume cache:/cache -- sh -c 'echo kept > /cache/file'\n"
                "cove run --volume cache:/cache:ro -- cat /cache/file\n"
                "cove volume rm cache",
    .operands = "=create ls rm",
    COMMAND_FLAGS(flags),
    .run = volume_run,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/things.h"

#include <unistd.h>

enum { SIZE_LEAST = 1 << 20 };

static const struct flag volume_flags[] = {
    {0, "size", "SIZE", "create: its maximum size: 2GiB. Default: limited only by the pool."},
    {'q', "quiet", NULL, "ls: prints names only, one a line."},
};

struct volume_options {
    bool quiet;
    uint64_t size;
};

static int volume_create(struct context *ctx, void *options)
{
    const struct volume_options *o = options;
    AUTO_JSON json_t *made = NULL,
                     *body = json_pack("{s:s,s:I}", "name", ctx->argv[ctx->argi], "limit_bytes", (json_int_t)o->size);
    if (!body)
        return context_usage(ctx, "the name must be UTF-8");
    if (service_ask(ctx, "POST", "/cove/v1/volumes", body, "making a volume", &made) < 0)
        return context_fail(ctx, STATUS_FAILED);
    return things_answer(ctx, made, "name");
}

static bool is_elsewhere(const json_t *one)
{
    return json_is_false(json_object_get(one, "in_pool"));
}

static void volume_warn(const json_t *all)
{
    const json_t *elsewhere = NULL;
    char others[32] = "";
    size_t n = 0;
    JSON_FOREACH (one, all)
        if (is_elsewhere(one) && !n++)
            elsewhere = one;
    if (!n)
        return;
    if (n > 1)
        (void)snprintf(others, sizeof(others), " and %zu more", n - 1);
    terminal_line(stderr,
                  "cove volume: %s%s can't be used: not in this pool, but made in another one, or taken away from it",
                  things_text(elsewhere, "name"), others);
    terminal_line(stderr, "  start the service with that pool again (pool.kind, COVE_POOL), or give them up with "
                          "'cove volume rm'");
}

static void volume_used(struct table *t, const json_t *one, const char *name)
{
    if (is_elsewhere(one))
        table_add(t, STR("not in pool"));
    else
        things_size(t, one, name);
}

static const struct things_column volume_columns[] = {{"NAME", "name", NULL},
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
    .columns = volume_columns,
    .n_columns = ARRAY_SIZE(volume_columns),
    .warn = volume_warn,
};

static int volume_list(struct context *ctx, void *options)
{
    const struct volume_options *o = options;
    return things_list(ctx, &volumes, o->quiet ? "/cove/v1/volumes" : "/cove/v1/volumes?usage=true", o->quiet);
}

static int volume_remove(struct context *ctx, void *options UNUSED)
{
    return things_remove(ctx, &volumes);
}

static int volume_run(struct context *ctx)
{
    static const struct command_form forms[] = {{"create", volume_create, 1, 1, "create takes one name"},
                                                {"ls", volume_list, 0, 0, "ls takes no operand"},
                                                {"rm", volume_remove, 1, FORM_MANY, "the volume's name is missing"}};
    struct volume_options o = {0};
    const struct flag_into into[] = {
        {"size", .number = &o.size, .kind = FLAG_SIZE, .least = SIZE_LEAST}, {"quiet", .on = &o.quiet}, {.name = NULL}};
    return context_read(ctx, into) < 0 ? context_exit(ctx) : context_form(ctx, forms, ARRAY_SIZE(forms), &o);
}

const struct command cmd_volume = {
    .name = "volume",
    .summary = "create, list and remove volumes",
    .text = &text_volume,
    .operands = "=create ls rm",
    COMMAND_FLAGS(volume_flags),
    .run = volume_run,
};

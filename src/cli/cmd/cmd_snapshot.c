/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/things.h"

static const struct flag snapshot_flags[] = {
    {0, "sandbox", "ID", "ls: only snapshots of this sandbox."},
    {0, "memory", NULL,
     "Includes its memory: what is created from the snapshot continues where the sandbox is now. Not in every tier."},
    {'q', "quiet", NULL, "ls: prints names only, one a line."},
};

static int snapshot_make(struct context *ctx, const char *name, json_t *body)
{
    AUTO_JSON json_t *made = NULL;
    if (name && json_object_set_new(body, "name", json_string(name)) < 0)
        return context_usage(ctx, "the name must be UTF-8");
    if (service_ask_sandbox(ctx, "POST", "/snapshots", body, "taking a snapshot", NULL, &made) < 0)
        return context_fail(ctx, STATUS_FAILED);
    return things_answer(ctx, made, "ref");
}

static const struct things_column snapshot_columns[] = {{"SNAPSHOT", "ref", NULL},
                                                        {"SANDBOX", "sandbox", NULL},
                                                        {"AGE", "at", things_ago},
                                                        {"MEMORY", "memory_bytes", things_size},
                                                        {"CPUS", "cpu_milli", things_cpus}};

static const struct things snapshots = {
    .one = "snapshot",
    .all = "snapshots",
    .name = "ref",
    .how_made = "'cove snapshot ID' takes one",
    .how_free = "'cove rm' ends the sandboxes that stand on it",
    .remove = "/cove/v1/snapshots?ref=",
    .columns = snapshot_columns,
    .n_columns = ARRAY_SIZE(snapshot_columns),
};

static int snapshot_list(struct context *ctx, const char *sandbox, bool quiet)
{
    AUTO_FREE char *id = NULL, *target = NULL;
    AUTO(service_close) struct service *s = sandbox ? service_open(ctx) : NULL;
    if (sandbox && (!s || service_resolve(s, sandbox, &id) < 0))
        return context_fail(ctx, STATUS_FAILED);
    target = mem_printf("/cove/v1/snapshots%s%s", id ? "?sandbox=" : "", id ? id : "");
    return things_list(ctx, &snapshots, target, quiet);
}

static int snapshot_run(struct context *ctx)
{
    AUTO_JSON json_t *body = json_object();
    const char *sandbox = NULL;
    bool quiet = false;
    if (CONTEXT_READ(ctx, {"sandbox", .text = &sandbox}, {"memory", .json = body}, {"quiet", .on = &quiet}) < 0)
        return context_exit(ctx);
    int n = context_operands(ctx);
    char *const *operands = ctx->argv + ctx->argi;
    const char *what = n ? operands[0] : "";
    bool lists = context_is_word(what, "ls"), removes = context_is_word(what, "rm");
    if (n && context_check_form(ctx, lists ? "ls" : removes ? "rm" : "") != STATUS_OK)
        return STATUS_USAGE;
    if (lists)
        return n == 1 ? snapshot_list(ctx, sandbox, quiet) : context_usage(ctx, "ls takes no operand");
    if (removes && n == 1)
        return context_usage(ctx, "the snapshot's name or id is missing");
    ctx->argi += removes;
    if (removes)
        return things_remove(ctx, &snapshots);
    if (n < 1 || n > 2)
        return context_usage(ctx, n ? "give a sandbox's id and a name, or ls, or rm" : "of which sandbox? give its id");
    return snapshot_make(ctx, n == 2 ? operands[1] : NULL, body);
}

const struct command cmd_snapshot = {
    .name = "snapshot",
    .summary = "take, list and remove snapshots",
    .text = &text_snapshot,
    .operands = "id=ls rm",
    COMMAND_FLAGS(snapshot_flags),
    .run = snapshot_run,
};

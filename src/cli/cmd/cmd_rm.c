/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"

static const struct flag flags[] = {
    {'a', 'a', "all", NULL, "Removes every sandbox of the service."},
};

/* Adds the id to `removed`; prints the error otherwise. */
static int rm_remove_one(struct context *ctx, struct service *s, const char *text, json_t *removed)
{
    AUTO_FREE char *id = NULL;
    if (service_resolve(s, text, &id) < 0)
        return context_fail(ctx, -1);
    AUTO_FREE char *target = service_target(id, "%s", "");
    if (service_call(s, "DELETE", target, NULL, "removing", NULL) < 0)
        return context_fail(ctx, -1);
    (void)json_array_append_new(removed, json_string(id));
    if (!ctx->json)
        (void)printf("%s\n", id);
    return 0;
}

static int rm_run(struct context *ctx)
{
    const char *value;
    bool all = false;
    int flag, status = STATUS_OK;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        all = true;
    if (flag < 0)
        return context_exit(ctx);
    if (all == (context_operands(ctx) > 0))
        return context_usage(ctx, all ? "give either ids or --all" : "which? give an id, several, or --all");

    AUTO_JSON json_t *removed = json_array(), *sandboxes = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || (all && service_sandboxes(s, &sandboxes) < 0))
        return context_fail(ctx, STATUS_FAILED);
    struct terminal_progress p;
    size_t n = all ? json_array_size(sandboxes) : (size_t)context_operands(ctx);
    progress_start(&p, ctx->json);
    for (size_t i = 0; i < n; i++) {
        const char *id = all ? json_string_value(json_object_get(json_array_get(sandboxes, i), "id"))
                             : ctx->argv[ctx->argi + (int)i];
        *ctx->hint = '\0';
        progress_show(&p, "removing, %zu of %zu", i + 1, n);
        /* With --all, one that ends meanwhile by itself is as good as removed. */
        if (id && rm_remove_one(ctx, s, id, removed) < 0 && !(all && ctx->err.code == ERR_NOT_FOUND))
            status = STATUS_FAILED;
    }
    progress_end(&p);
    if (ctx->json) {
        AUTO_JSON json_t *answer = json_pack("{s:O}", "removed", removed);
        print_json(answer);
    }
    return status;
}

const struct command cmd_rm = {
    .name = "rm",
    .summary = "end and remove sandboxes",
    .synopsis = "ID...\n--all",
    .description =
        "Ends the sandboxes with everything that runs in them, and removes their files. Their event logs stay ('cove "
        "log'). Prints the id of each removed sandbox. If one can't be removed, the others still are.",
    .exit_status = " 0  all were removed\n 1  one was not; stderr says which and why\n 2  the command line is wrong",
    .examples = "cove rm i3k\n"
                "cove rm --all",
    .operands = "id",
    COMMAND_FLAGS(flags),
    .run = rm_run,
};

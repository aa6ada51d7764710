/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd/commands.h"
#include "cli/each.h"
#include "cli/print.h"

static const struct flag fork_flags[] = {
    {'n', "count", "N", "The number of copies, at most 1000. Default: 1."},
    {0, "at", "SEQ", "Copies the files of the last checkpoint up to this event ('cove rewind ID' lists them)."},
    {0, "memory", NULL, "Copies memory and processes, too: each continues where it is now. Not in every tier."},
    {0, "timeout", "TIME", "Ends each after this time: 90s, 5m; 0 for never. Default: the original's."},
};

/* Prints the ids of those that were made, and what kept the others from it once for each reason in a row. */
static int print(struct context *ctx, const json_t *answer)
{
    const json_t *forks = json_object_get(answer, "forks");
    const char *last = "";
    int status = STATUS_OK;
    JSON_FOREACH_AT (i, one, forks) {
        const char *id = json_string_value(json_object_get(json_object_get(one, "sandbox"), "id"));
        const char *why = json_string_value(json_object_get(json_object_get(one, "error"), "message"));
        const char *hint = json_string_value(json_object_get(json_object_get(one, "error"), "hint"));
        if (id) {
            if (!ctx->json)
                print_line(id);
            continue;
        }
        status = STATUS_FAILED;
        if (!ctx->json && why && strcmp(why, last) != 0) {
            (void)err_set(&ctx->err, ERR_UNKNOWN, "fork %zu: %s", i + 1, why);
            context_hint(ctx, "%s", hint ? hint : "");
            (void)context_fail(ctx, 0);
            last = why;
        }
    }
    if (ctx->json)
        print_json(answer);
    return status;
}

static int fork_run(struct context *ctx)
{
    AUTO_JSON json_t *body = json_object(), *answer = NULL;
    const struct flag_into into[] = {
        {"count", .json = body, .kind = FLAG_NUMBER, .least = 1, .most = 1000, .wanted = "a number from 1 to 1000"},
        {"at", .json = body, .kind = FLAG_NUMBER, .least = 1, .wanted = "the seq of an event, which 'cove log' shows"},
        {"memory", .json = body},
        {"timeout", .json = body, .member = "timeout_ms", .kind = FLAG_TIME, .wanted = CONTEXT_TIME},
        {.name = NULL}};
    if (context_read_one(ctx, into) < 0)
        return context_exit(ctx);
    if (service_ask_sandbox(ctx, "POST", "/fork", body, "forking", NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    return print(ctx, answer);
}

const struct command cmd_fork = {
    .name = "fork",
    .summary = "copy a running sandbox, files and all",
    .text = &text_fork,
    .operands = "id",
    COMMAND_FLAGS(fork_flags),
    .run = fork_run,
};

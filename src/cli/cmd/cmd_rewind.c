/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/print.h"
#include "cli/service.h"

static void rewind_list(const json_t *answer)
{
    const json_t *all = json_object_get(answer, "checkpoints");
    char line[96];
    print_line("SEQ      AT");
    JSON_FOREACH (one, all) {
        const char *at = json_string_value(json_object_get(one, "at"));
        (void)snprintf(line, sizeof(line), "%-8" JSON_INTEGER_FORMAT " %s",
                       json_integer_value(json_object_get(one, "seq")), at ? at : "");
        print_line(line);
    }
}

static int rewind_to(struct context *ctx, struct service *s, const char *id, const char *text)
{
    AUTO_JSON json_t *body = NULL, *answer = NULL;
    uint64_t seq;
    if (str_to_u64(str_of(text), &seq) < 0 || !seq || seq > INT64_MAX)
        return context_usage(ctx, "%s: write the seq of an event, which 'cove log' shows", text);
    body = json_pack("{s:I}", "seq", (json_int_t)seq);
    AUTO_FREE char *target = service_target(id, "/rewind");
    if (service_call(s, "POST", target, body, "rewinding", &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(answer);
    else
        (void)printf("%s has its files as of event %" JSON_INTEGER_FORMAT "\n", id,
                     json_integer_value(json_object_get(answer, "checkpoint")));
    return STATUS_OK;
}

static int rewind_run(struct context *ctx)
{
    AUTO_JSON json_t *answer = NULL;
    AUTO_FREE char *id = NULL;
    if (context_read(ctx, NULL) < 0)
        return context_exit(ctx);
    size_t n = (size_t)context_operands(ctx);
    if (n < 1 || n > 2)
        return context_usage(ctx, n ? "one sandbox at a time" : "the sandbox's id is missing");
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, ctx->argv[ctx->argi], &id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (n == 2)
        return rewind_to(ctx, s, id, ctx->argv[ctx->argi + 1]);
    AUTO_FREE char *target = service_target(id, "/checkpoints");
    if (service_call(s, "GET", target, NULL, "looking for checkpoints", &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(answer);
    else
        rewind_list(answer);
    return STATUS_OK;
}

const struct command cmd_rewind = {
    .name = "rewind",
    .summary = "restore a sandbox's files from a checkpoint",
    .synopsis = "ID [SEQ]",
    .description =
        "Restores all files of the sandbox ID from the last checkpoint up to the event SEQ of its log. Checkpoints "
        "are made while the sandbox is used, as 'cove run --checkpoint', the guard's rules or the label "
        "cove.checkpoint say. Without SEQ, lists them.\n\nAll processes in the sandbox end. It starts anew on these "
        "files, as after 'cove pause --files-only' and 'cove resume', and its timeout begins again. Volumes are not "
        "restored. Newer checkpoints stay, so you can undo a rewind with another one.",
    .exit_status = " 0  it runs on these files\n 1  it does not; stderr says why\n 2  the command line is wrong",
    .examples = "cove rewind i3k\n"
                "cove rewind i3k 42",
    .operands = "id",
    .run = rewind_run,
};

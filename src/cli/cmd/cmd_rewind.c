/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"
#include "config/units.h"

enum { WHAT_MAX = 60 };

/* Of the actions, by number: what each did. Of the checkpoints, too: what they were made before or after. */
static int rewind_label(struct context *ctx UNUSED, const json_t *event, struct str line UNUSED, void *arg)
{
    json_t *labels = arg;
    AUTO_BUF struct buf what = BUF_INIT(1 << 20);
    const char *kind = service_text(event, "kind");
    const json_t *data = json_object_get(event, "data");
    const unsigned long long cause = service_number(event, "cause");
    char at[UNIT_TEXT_MAX];
    (void)snprintf(at, sizeof(at), "%llu", cause ? cause : service_number(event, "seq"));
    const char *told = cause ? service_text(labels, at) : "";
    if (*told)
        buf_printf(&what, "after%s", told + strcspn(told, " "));
    else if (!cause)
        buf_append_cstr(&what, "before ");
    if (!cause && strcmp(kind, "exec.start") == 0)
        events_command(&what, data);
    else if (!*told)
        buf_printf(&what, "%s%s%s", kind, *service_text(data, "path") ? " " : "", service_text(data, "path"));
    (void)snprintf(at, sizeof(at), "%llu", service_number(event, "seq"));
    (void)json_object_set_new(labels, at, json_stringn(buf_data(&what), buf_len(&what)));
    return 1;
}

static void rewind_what(struct table *t, const json_t *one, const char *name)
{
    table_add_cut(t, str_of(service_text(one, name)), WHAT_MAX);
}

static int rewind_list(struct context *ctx, struct service *s, const char *id, const json_t *answer)
{
    static const struct things_column columns[] = {
        {"SEQ", "seq", things_number}, {"AT", "at", NULL}, {"FILES AS THEY WERE", "what", rewind_what}};
    const json_t *all = json_object_get(answer, "checkpoints");
    AUTO_JSON json_t *labels = json_object();
    AUTO_FREE char *target = service_target(id, "/events?kind=exec.start,exec.exit,exec.failed,file.,code.&from=");
    const struct events_want want = {target, false, rewind_label, labels};
    if (!json_array_size(all)) {
        (void)fprintf(stderr, "%s has no checkpoints%s\n", id,
                      strcmp(service_text(answer, "checkpoint"), "off") == 0
                          ? ": 'cove run --checkpoint action' makes them before and after each command, 'cove "
                            "snapshot' one now"
                          : " yet");
        return STATUS_OK;
    }
    int status = events_take(ctx, s, &want, 1);
    JSON_FOREACH (one, all) {
        char seq[UNIT_TEXT_MAX];
        (void)snprintf(seq, sizeof(seq), "%llu", service_number(one, "seq"));
        (void)json_object_set(one, "what", json_object_get(labels, seq));
    }
    (void)things_table(ctx, all, columns, ARRAY_SIZE(columns));
    return status;
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
        return context_one_sandbox(ctx, (int)n);
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, ctx->argv[ctx->argi], &id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (n == 2)
        return rewind_to(ctx, s, id, ctx->argv[ctx->argi + 1]);
    AUTO_FREE char *target = service_target(id, "/checkpoints");
    if (service_call(s, "GET", target, NULL, "looking for checkpoints", &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (!ctx->json)
        return rewind_list(ctx, s, id, answer);
    print_json(answer);
    return STATUS_OK;
}

const struct command cmd_rewind = {
    .name = "rewind",
    .summary = "restore a sandbox's files from a checkpoint",
    .text = &text_rewind,
    .operands = "id",
    .run = rewind_run,
};

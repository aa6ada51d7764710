/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/events.h"
#include "base/mem.h"
#include "cli/service.h"

#include <stdio.h>
#include <unistd.h>

const char *events_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

void events_time(const json_t *event, char ret_text[static EVENTS_TIME_MAX])
{
    const char *time = strchr(events_text(event, "time"), 'T');
    (void)snprintf(ret_text, EVENTS_TIME_MAX, "%.12s", time ? time + 1 : "");
}

static int print_all(struct context *ctx, struct service *s, const struct events *what, bool follows)
{
    bool is_tty = isatty(STDOUT_FILENO) == 1;
    struct str line;
    json_t *object;
    int r;
    while ((r = service_object(s, &line, &object)) > 0) {
        AUTO_JSON json_t *event = object;
        const char *kind = events_text(event, "kind");
        if (ctx->json && str_starts(str_of(kind), str_of(what->json_kinds)))
            (void)printf("%.*s\n", STR_ARG(line));
        else if (!ctx->json)
            what->print(event, is_tty);
        if (follows && fflush(stdout) < 0)
            break;
    }
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

int events_run(struct context *ctx, const struct events *what)
{
    const char *value;
    bool follows = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        follows = true;
    if (flag < 0)
        return context_exit(ctx);
    if (context_operands(ctx) != 1)
        return context_usage(ctx, context_operands(ctx) ? "one sandbox at a time" : "the sandbox's id is missing");

    AUTO_FREE char *id = NULL, *target = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, ctx->argv[ctx->argi], &id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    target = service_target(id, "/events?%sfollow=%d", what->query, follows);
    if (service_stream(s, "GET", target) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (follows)
        http_client_timeout(service_client(s), -1);
    return print_all(ctx, s, what, follows);
}

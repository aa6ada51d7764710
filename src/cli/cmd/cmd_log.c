/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"

#include <unistd.h>

static const struct flag log_flags[] = {
    {0, "from", "SEQ", "Begins with the event of this number. Default: 1, the first."},
    {'f', "follow", NULL, "Follows new events until the sandbox ends."},
    EVENTS_INSIDE,
    {0, "last", NULL, "Uses the newest sandbox, even if it has ended."},
    {0, "service", NULL, "The log of the service itself: templates, secrets, the pool."},
    {0, "verify", NULL, "Checks the chain of hashes instead of printing events."},
    {0, "output", "SEQ",
     "Prints the kept output of the command that this event started, an exec.start, if the events don't have all "
     "of it."},
    {0, "channel", "stdout|stderr|pty", "With --output: the channel; pty is a terminal's output. Default: stdout."},
};

/* id NULL: the service's. */
static int print_events(struct context *ctx, struct service *s, const char *id, uint64_t from, bool follows,
                        bool has_inside)
{
    AUTO_FREE char *target = id ? service_target(id, "/events?follow=%d&from=", follows)
                                : mem_printf("/cove/v1/service/events?follow=%d&from=", follows);
    return events_print(ctx, s, target, from, &(struct events_printed){follows, has_inside, NULL, NULL});
}

static int log_verify(struct context *ctx, struct service *s, const char *id)
{
    AUTO_FREE char *target = id ? service_target(id, "/verify") : mem_strdup("/cove/v1/service/verify");
    AUTO_JSON json_t *verdict = NULL;
    if (service_call(s, "GET", target, NULL, "checking the chain", &verdict) < 0)
        return context_fail(ctx, STATUS_FAILED);
    bool intact = json_is_true(json_object_get(verdict, "intact"));
    if (ctx->json) {
        print_json(verdict);
    } else if (intact) {
        (void)printf("intact: %llu events, %llu to %llu\n", service_number(verdict, "checked"),
                     service_number(verdict, "first"), service_number(verdict, "last"));
    } else {
        terminal_line(stdout, "broken: %s", service_text(verdict, "detail"));
    }
    return intact ? STATUS_OK : STATUS_FAILED;
}

static int log_print_output(struct context *ctx, struct service *s, const char *id, uint64_t seq, const char *channel)
{
    AUTO_FREE char *target = service_target(id, "/output?seq=%llu&channel=%s", (unsigned long long)seq, channel);
    bool is_tty = isatty(STDOUT_FILENO) == 1;
    char piece[16 * 1024];
    ssize_t n;
    if (service_stream(s, "GET", target) < 0)
        return context_fail(ctx, STATUS_FAILED);
    while ((n = http_client_read(service_client(s), piece, sizeof(piece))) > 0) {
        struct str rest = str_n(piece, (size_t)n), line;
        if (!is_tty && fwrite(piece, 1, (size_t)n, stdout) < (size_t)n)
            return STATUS_FAILED; /* whoever read it has enough */
        while (is_tty && str_split(&rest, '\n', &line)) {
            terminal_print(stdout, true, line);
            if (rest.p)
                (void)fputc('\n', stdout);
        }
    }
    return n < 0 ? (void)service_broken(s, (int)n, "reading the output"), context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

/* A sandbox, or a volume: by its name, or by its id, which is how one is called that is gone. */
static int resolve(struct context *ctx, struct service *s, const char *text, char **ret_id)
{
    enum { VOLUME_ID = 24 };
    AUTO_JSON json_t *answer = NULL;
    if (strlen(text) == VOLUME_ID && str_starts(str_of(text), STR("vol-"))) {
        *ret_id = mem_strdup(text);
        return 0;
    }
    if (service_resolve_log(s, text, ret_id) == 0)
        return 0;
    if (ctx->err.code != ERR_NOT_FOUND && ctx->err.code != ERR_INVALID_ARGUMENT)
        return -1;
    const struct err why = ctx->err;
    if (service_call(s, "GET", "/cove/v1/volumes", NULL, "listing volumes", &answer) < 0)
        return -1;
    JSON_FOREACH (one, json_object_get(answer, "volumes"))
        if (strcmp(service_text(one, "name"), text) == 0) {
            *ret_id = mem_strdup(service_text(one, "id"));
            return 0;
        }
    context_hint(
        ctx, "'cove ls --all' and 'cove volume ls' list those there are; the log of a volume that is gone goes by its "
             "whole id");
    if (why.code == ERR_NOT_FOUND)
        return err_set(&ctx->err, ERR_NOT_FOUND, "there is no sandbox and no volume %.64s", text);
    ctx->err = why;
    return -1;
}

static int log_run(struct context *ctx)
{
    static const char number[] = "the number of an event";
    const char *channel = NULL;
    uint64_t from = 1, output = UINT64_MAX;
    bool follows = false, verifies = false, is_service = false, is_last = false, has_inside = false;
    const struct flag_into into[] = {{"from", .number = &from, .kind = FLAG_NUMBER, .wanted = number},
                                     {"output", .number = &output, .kind = FLAG_NUMBER, .wanted = number},
                                     {"channel", .text = &channel},
                                     {"verify", .on = &verifies},
                                     {"service", .on = &is_service},
                                     {"last", .on = &is_last},
                                     {"follow", .on = &follows},
                                     {"inside", .on = &has_inside},
                                     {.name = NULL}};
    if (context_read(ctx, into) < 0)
        return context_exit(ctx);
    const bool has_output = output != UINT64_MAX;
    if (channel && strcmp(channel, "stdout") != 0 && strcmp(channel, "stderr") != 0 && strcmp(channel, "pty") != 0)
        return context_usage(ctx, "--channel %s: stdout, stderr or pty", channel);
    if (channel && !has_output)
        return context_usage(ctx, "--channel needs --output");
    if (has_output && (is_service || verifies || follows || ctx->json))
        return context_usage(ctx, "--output can only be combined with --channel");
    if (is_service && context_operands(ctx))
        return context_usage(ctx, "--service takes no id");
    if (is_last && (is_service || context_operands(ctx)))
        return context_usage(ctx, "--last takes no id, and no --service");
    if (!is_service && !is_last && context_operands(ctx) != 1)
        return context_one_sandbox(ctx, context_operands(ctx));

    AUTO_FREE char *id = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || (is_last ? service_newest(s, &id) : is_service ? 0 : resolve(ctx, s, ctx->argv[ctx->argi], &id)) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (has_output)
        return log_print_output(ctx, s, id, output, channel ? channel : "stdout");
    return verifies ? log_verify(ctx, s, id) : print_events(ctx, s, id, from, follows, has_inside);
}

const struct command cmd_log = {
    .name = "log",
    .summary = "print every action and its outcome, one per line: the record that --verify checks",
    .text = &text_log,
    .operands = "id",
    COMMAND_FLAGS(log_flags),
    .run = log_run,
};

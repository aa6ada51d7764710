/* SPDX-License-Identifier: Apache-2.0 */
/* The event log as a person reads it who wants to know what ran and what it wrote. */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"

#include <unistd.h>

static const struct flag logs_flags[] = {EVENTS_FLAGS, EVENTS_OWN};

/* time: of the event at hand. */
static void logs_print_lines(const char *time, const char *mark, struct str text)
{
    struct str line;
    if (str_ends(text, STR("\n")))
        text.n--;
    while (str_split(&text, '\n', &line)) {
        print_text(time);
        (void)printf(" %s ", mark);
        terminal_print(stdout, isatty(STDOUT_FILENO) == 1, line);
        (void)fputc('\n', stdout);
    }
}

/* What is not UTF-8 is told as base64, by a member whose name says so: appends the bytes, and returns the name without
 * that. */
static struct str logs_append_value(struct buf *b, const char *key, const json_t *value)
{
    const struct str name = str_of(key), mark = STR("_base64");
    struct str text = json_str(value);
    AUTO_BUF struct buf bytes = BUF_INIT(1 << 20);
    if (str_ends(name, mark) && buf_append_unbase64(&bytes, text) == 0) {
        (void)buf_append_str(b, buf_str(&bytes));
        return str_n(name.p, name.n - mark.n);
    }
    (void)buf_append_str(b, text);
    return name;
}

/* "  key=value" for each member that is not nested. */
static void append_members(struct buf *b, const json_t *data)
{
    JSON_FOREACH_MEMBER (key, value, data) {
        if (json_is_object(value) || json_is_array(value))
            continue;
        AUTO_BUF struct buf text = BUF_INIT(1 << 20);
        struct str name = str_of(key);
        AUTO_FREE char *number = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
        if (number)
            buf_append_cstr(&text, number);
        else
            name = logs_append_value(&text, key, value);
        buf_printf(b, " %.*s=", STR_ARG(name));
        buf_append_str(b, buf_str(&text));
    }
}

static void logs_print_command(const char *time, const json_t *data)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    events_command(&b, data);
    logs_print_lines(time, "$", buf_str(&b));
}

static void logs_print_output(const char *time, const json_t *data)
{
    JSON_FOREACH (piece, json_object_get(data, "output")) {
        JSON_FOREACH_MEMBER (channel, value, piece) {
            if (!json_is_string(value))
                continue;
            AUTO_BUF struct buf text = BUF_INIT(1 << 20);
            struct str name = logs_append_value(&text, channel, value);
            logs_print_lines(time, str_eqc(name, "stderr") ? "!" : " ", buf_str(&text));
        }
    }
}

static void logs_print_event(const json_t *event)
{
    char time[EVENTS_TIME_MAX];
    const json_t *data = json_object_get(event, "data");
    const char *kind = service_text(event, "kind");
    events_time(event, time);
    if (strcmp(kind, "exec.output") == 0) {
        logs_print_output(time, data);
    } else if (strcmp(kind, "exec.start") == 0) {
        logs_print_command(time, data);
    } else if (strcmp(kind, "exec.exit") == 0 || strcmp(kind, "exec.failed") == 0 ||
               str_starts(str_of(kind), STR("sandbox.")) || str_starts(str_of(kind), STR("limit."))) {
        AUTO_BUF struct buf b = BUF_INIT(1 << 20);
        buf_append_cstr(&b, kind);
        append_members(&b, data);
        logs_print_lines(time, "-", buf_str(&b));
    }
}

static int logs_run(struct context *ctx)
{
    return events_run(ctx, &(struct events){"", "exec.", logs_print_event, true});
}

const struct command cmd_logs = {
    .name = "logs",
    .summary = "print commands and their output, as a terminal would have shown them",
    .text = &text_logs,
    .operands = "id",
    COMMAND_FLAGS(logs_flags),
    .run = logs_run,
};

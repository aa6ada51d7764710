/* SPDX-License-Identifier: Apache-2.0 */
/* The network's part of the event log, for people. */
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/exec/terminal.h"
#include "cli/net_flags.h"
#include "cli/service.h"
#include "config/units.h"

static const struct flag net_log_flags[] = {EVENTS_FLAGS};

/* "api.example.com:443 (1.2.3.4)" */
static void append_target(struct buf *b, const json_t *d)
{
    const char *name = service_text(d, "name"), *address = service_text(d, "address");
    bool is_wide = !*name && strchr(address, ':');
    buf_printf(b, " %s%s%s", is_wide ? "[" : "", *name ? name : address, is_wide ? "]" : "");
    if (service_number(d, "port"))
        buf_printf(b, ":%llu", service_number(d, "port"));
    if (*name && *address)
        buf_printf(b, " (%s)", address);
}

static void append_bytes(struct buf *b, const json_t *d)
{
    char sent[UNIT_TEXT_MAX], received[UNIT_TEXT_MAX];
    unit_format_size(service_number(d, "sent"), sent);
    unit_format_size(service_number(d, "received"), received);
    buf_printf(b, "  sent %s, received %s", sent, received);
}

static void append_open(struct buf *b, const json_t *d)
{
    buf_printf(b, "+ %s", service_text(d, "proto"));
    append_target(b, d);
    if (json_is_true(json_object_get(d, "intercepted")))
        buf_append_cstr(b, "  opened");
}

static void append_close(struct buf *b, const json_t *d)
{
    buf_printf(b, "- %s", service_text(d, "proto"));
    append_target(b, d);
    append_bytes(b, d);
    buf_printf(b, ", %llu ms", service_number(d, "us") / 1000);
    /* Many servers end without a word. What was cut is told by who read it, and --json has it. */
    if (*service_text(d, "error") && !strstr(service_text(d, "error"), "close_notify"))
        buf_printf(b, "  %s", service_text(d, "error"));
}

static void append_flows(struct buf *b, const json_t *d)
{
    buf_printf(b, "+ %llu more opened, %llu closed", service_number(d, "opened"), service_number(d, "closed"));
    append_bytes(b, d);
}

static void append_request(struct buf *b, const json_t *d)
{
    buf_printf(b, "= %s %s %llu", service_text(d, "method"), service_text(d, "url"), service_number(d, "status"));
    JSON_FOREACH_AT (i, name, json_object_get(d, "injected"))
        buf_printf(b, "%s%s", i ? ", " : "  with ", json_string_value(name) ? json_string_value(name) : "");
}

static void append_denied(struct buf *b, const json_t *d)
{
    buf_printf(b, "! %s", service_text(d, "proto"));
    append_target(b, d);
    if (*service_text(d, "method"))
        buf_printf(b, " %s %s", service_text(d, "method"), service_text(d, "path"));
    buf_printf(b, "  denied: %s", service_text(d, "reason"));
    if (service_number(d, "count") > 1)
        buf_printf(b, " (%llu times)", service_number(d, "count"));
    if (!*service_text(d, "suggestion"))
        return;
    buf_append_cstr(b, "; ");
    net_flags_suggest(b, service_text(d, "suggestion"));
}

static void append_unresolved(struct buf *b, const json_t *d)
{
    buf_printf(b, "? %s  not resolved: %s", service_text(d, "name"), service_text(d, "reason"));
    if (service_number(d, "count") > 1)
        buf_printf(b, " (%llu times)", service_number(d, "count"));
}

static void append_misuse(struct buf *b, const json_t *d)
{
    buf_printf(b, "! what stands for the secret %s went to %s:%llu, where it does not belong",
               service_text(d, "secret"), service_text(d, "name"), service_number(d, "port"));
}

static void append_policy(struct buf *b, const json_t *d)
{
    unsigned long long n = service_number(d, "n_rules");
    buf_printf(b, "# policy set: %llu rule%s, else %s", n, n == 1 ? "" : "s", service_text(d, "default"));
}

static void append_failed(struct buf *b, const json_t *d)
{
    buf_printf(b, "# policy not set: %s", service_text(d, "message"));
}

static void append_up(struct buf *b, const json_t *d UNUSED)
{
    buf_append_cstr(b, "# the network is up");
}

static void append_down(struct buf *b, const json_t *d)
{
    buf_printf(b, "# the network is down: %s", service_text(d, "why"));
}

static const struct {
    const char *kind;
    void (*append)(struct buf *b, const json_t *data);
} kinds[] = {
    {"net.open", append_open},       {"net.close", append_close},           {"net.flows", append_flows},
    {"net.request", append_request}, {"net.denied", append_denied},         {"net.misuse", append_misuse},
    {"net.policy", append_policy},   {"net.failed", append_failed},         {"net.up", append_up},
    {"net.down", append_down},       {"net.unresolved", append_unresolved},
};

static void net_print_event(const json_t *event)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    char time[EVENTS_TIME_MAX];
    const char *kind = service_text(event, "kind");
    events_time(event, time);
    buf_printf(&b, "%s ", time);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strcmp(kinds[i].kind, kind) != 0)
            continue;
        kinds[i].append(&b, json_object_get(event, "data"));
        if (*service_text(event, "actor"))
            buf_printf(&b, "  by %s", service_text(event, "actor"));
        terminal_line(stdout, "%.*s", STR_ARG(buf_str(&b)));
        return;
    }
}

static int net_run(struct context *ctx)
{
    return events_run(ctx, &(struct events){"kind=net.&", "", net_print_event, false});
}

const struct command cmd_net = {
    .name = "net",
    .summary = "print connections, requests and what the policy denied",
    .text = &text_net,
    .operands = "id",
    COMMAND_FLAGS(net_log_flags),
    .run = net_run,
};

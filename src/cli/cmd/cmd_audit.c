/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/audit/sink.h"
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/service.h"

#include <poll.h>
#include <unistd.h>

enum { AUDIT_LINE_MAX = 1 << 20, AUDIT_RETRY_MS = 1000 };

static const struct flag audit_flags[] = {
    {'f', "follow", NULL, "Follows new events."},
    {0, "format", "FORMAT", "jsonl (default), syslog (RFC 5424) or otlp (OpenTelemetry's JSON lines)."},
    {0, "dir", "DIR", "Writes files by day into this directory, and continues behind what is in it."},
    {0, "syslog", "ADDRESS", "Sends to /dev/log, udp:HOST:PORT or tcp:HOST:PORT."},
    {0, "state", "FILE", "Keeps the last cursor in this file, and continues behind it."},
    {0, "from", "CURSOR", "Begins with the event of this cursor if nothing was exported yet. Default: 1."},
};

struct audit {
    struct audit_sink *sink;
    const struct form *form;
    char host[256]; /* as syslog has it */
    bool follows;
};

static int audit_take(struct context *ctx, const json_t *event, struct str line, void *arg)
{
    struct audit *a = arg;
    AUTO_BUF struct buf b = BUF_INIT(AUDIT_LINE_MAX);
    char day[11];
    (void)snprintf(day, sizeof(day), "%.10s", service_text(event, "time"));
    a->form->write(&b, event, line, a->host);
    if (buf_error(&b))
        return err_set(&ctx->err, ERR_INTERNAL, "event %llu is too long", (unsigned long long)events_number(event));
    int r = sink_put(a->sink, buf_str(&b), day, events_number(event), &ctx->err);
    while (r < 0 && a->follows &&
           ctx->err.code == ERR_UNAVAILABLE) { /* a receiver of syslog that is away for a while */
        (void)poll(NULL, 0, AUDIT_RETRY_MS);
        r = sink_put(a->sink, buf_str(&b), day, events_number(event), &ctx->err);
    }
    return r < 0 ? -1 : 1;
}

static int audit_export(struct context *ctx, struct audit *a, uint64_t from)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *target = mem_printf("/cove/v1/events?follow=%d&hidden=1&from=", a->follows);
    int status = events_take(ctx, s, &(struct events_want){target, a->follows, audit_take, a}, from);
    if (status == STATUS_OK && sink_end(a->sink, &ctx->err) < 0)
        status = context_fail(ctx, STATUS_FAILED);
    return status;
}

static void audit_host(const struct context *ctx, char *ret_host, size_t n)
{
    (void)snprintf(ret_host, n, "-");
    if (ctx->host || gethostname(ret_host, n - 1) < 0)
        return;
    ret_host[n - 1] = '\0';
    for (const char *c = ret_host; *c || c == ret_host; c++)
        if (*c <= ' ' || *c >= 0x7f) {
            (void)snprintf(ret_host, n, "-");
            return;
        }
}

static int audit_run(struct context *ctx)
{
    const char *dir = NULL, *syslog = NULL, *state = NULL, *format = NULL;
    struct audit a = {0};
    uint64_t from = 1, last = 0;
    if (CONTEXT_READ(ctx, {"dir", .text = &dir}, {"syslog", .text = &syslog}, {"state", .text = &state},
                     {"format", .text = &format}, {"follow", .on = &a.follows},
                     {"from", .number = &from, .kind = FLAG_NUMBER, .least = 1, .wanted = "the cursor of an event"}) <
        0)
        return context_exit(ctx);
    if (context_operands(ctx) != 1 || strcmp(ctx->argv[ctx->argi], "export") != 0)
        return context_usage(ctx, "export is the only form, without operands; --dir DIR writes files");
    if (dir && (syslog || state))
        return context_usage(ctx, "--dir: the files are its state, and syslog is another target");
    if (syslog && format && strcmp(format, "syslog") != 0)
        return context_usage(ctx, "--syslog has a format of its own");
    a.form = form_find(syslog ? "syslog" : format ? format : "jsonl");
    if (!a.form)
        return context_usage(ctx, "--format %s: write %s", format, form_names);
    a.sink = dir      ? sink_directory(dir, a.form, &last, &ctx->err)
             : syslog ? sink_syslog(syslog, &ctx->err)
                      : sink_stdout(a.follows || state);
    audit_host(ctx, a.host, sizeof(a.host));
    int status = STATUS_FAILED;
    if (!a.sink && ctx->err.code == ERR_INVALID_ARGUMENT)
        status = context_fail(ctx, STATUS_USAGE);
    else if (!a.sink || (state && sink_state(a.sink, state, &last, &ctx->err) < 0))
        (void)context_fail(ctx, status);
    else
        status = audit_export(ctx, &a, last ? last + 1 : from);
    sink_free(a.sink);
    return status;
}

const struct command cmd_audit = {
    .name = "audit",
    .summary = "export all events as JSON lines, syslog or OTLP, to files by day or to a receiver",
    .text = &text_audit,
    .operands = "=export",
    COMMAND_FLAGS(audit_flags),
    .run = audit_run,
};

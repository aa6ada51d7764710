/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/service.h"
#include "config/units.h"

#include <ctype.h>

static const struct flag events_flags[] = {
    {'f', "follow", NULL, "Follows new events."},
    {'n', "last", "N", "Begins with the last N events. Default: 100."},
    {0, "from", "CURSOR", "Begins with the event of this cursor; 1 is the oldest."},
    {0, "since", "TIME",
     "Begins with the events of this time: 24h for a day ago, or 2026-11-26T09:00:00Z, or 2026-11-26."},
    {0, "until", "TIME", "Ends before the events of this time."},
    {0, "kind", "KIND[,KIND...]", "Only these kinds: sandbox.ended is one, net. is all that begin with it."},
    EVENTS_INSIDE,
    {0, "hidden", NULL, "Includes Cove's own sandboxes: for builds, for stock, for files in volumes."},
};

static bool is_kinds(const char *text)
{
    for (; *text; text++)
        if (!islower((unsigned char)*text) && !strchr("_.,", *text))
            return false;
    return true;
}

/* "2h": that long ago. A day begins at midnight in UTC, as all times that are printed. 0, or a status. */
static int events_take_time(struct context *ctx, const char *flag, const char *text,
                            char ret_time[static CLOCK_TEXT_MAX])
{
    uint64_t ms;
    usec_t at, now = clock_real();
    AUTO_FREE char *day = mem_printf("%sT00:00:00Z", text);
    if (unit_parse_duration(str_of(text), &ms) == 0)
        at = now - MIN(now, (usec_t)ms * 1000);
    else if (clock_parse(str_of(text), &at) < 0 && clock_parse(str_of(day), &at) < 0)
        return context_usage(ctx, "--%s %s: write how long ago, like 2h, or a time like 2026-11-26T09:00:00Z", flag,
                             text);
    clock_format(at, 6, ret_time);
    return 0;
}

static int cmd_events_run(struct context *ctx)
{
    const char *kinds = "", *since = NULL, *until = NULL;
    char times[2][CLOCK_TEXT_MAX];
    uint64_t from = 0, last = 100;
    bool follows = false, hidden = false, has_inside = false;
    if (CONTEXT_READ(ctx, {"follow", .on = &follows}, {"hidden", .on = &hidden}, {"inside", .on = &has_inside},
                     {"kind", .text = &kinds}, {"since", .text = &since}, {"until", .text = &until},
                     {"last", .number = &last, .kind = FLAG_NUMBER, .wanted = "a number"},
                     {"from", .number = &from, .kind = FLAG_NUMBER, .least = 1, .wanted = "the cursor of an event"}) <
        0)
        return context_exit(ctx);
    if (!is_kinds(kinds))
        return context_usage(ctx, "--kind %s: write kinds as they stand in the log", kinds);
    if (context_operands(ctx))
        return context_usage(ctx, "'cove log' is for one sandbox");
    if (since && from)
        return context_usage(ctx, "give --since or --from");
    if ((since && events_take_time(ctx, "since", since, times[0])) ||
        (until && events_take_time(ctx, "until", until, times[1])))
        return STATUS_USAGE;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *target = mem_printf("/cove/v1/events?follow=%d&hidden=%d&kind=%s&last=%llu&from=", follows, hidden,
                                        kinds, (unsigned long long)last);
    const struct events_printed what = {follows, has_inside || *kinds, since ? times[0] : NULL,
                                        until ? times[1] : NULL};
    return events_print(ctx, s, target, since || (until && !from) ? 1 : from, &what);
}

const struct command cmd_events = {
    .name = "events",
    .summary = "print the events of all sandboxes, volumes and the service, in one feed",
    .text = &text_events,
    .operands = "",
    COMMAND_FLAGS(events_flags),
    .run = cmd_events_run,
};

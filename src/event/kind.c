/* SPDX-License-Identifier: Apache-2.0 */
#include "event/kind.h"

#define KIND_INFO(kind, text, ...) [kind] = {.name = text, __VA_ARGS__},
static const struct event_kind_info kinds[EVENT_KIND_MAX] = {EVENT_KINDS(KIND_INFO)};

static const char *const sources[EVENT_SOURCE_MAX] = {
    [EVENT_SOURCE_UNKNOWN] = "unknown", [EVENT_CLIENT] = "client", [EVENT_AGENT] = "agent", [EVENT_HOST] = "host",
    [EVENT_KERNEL] = "kernel",
};

static const char *const grades[EVENT_GRADE_MAX] = {
    [EVENT_GRADE_UNKNOWN] = "unknown",
    [EVENT_OBSERVED_HOST] = "observed-host",
    [EVENT_OBSERVED_KERNEL] = "observed-kernel",
    [EVENT_CLAIMED] = "claimed",
};

const struct event_kind_info *event_kind_info(enum event_kind kind)
{
    return &kinds[(unsigned)kind < EVENT_KIND_MAX ? kind : EVENT_KIND_UNKNOWN];
}

const char *event_kind_name(enum event_kind kind)
{
    return event_kind_info(kind)->name;
}

enum event_kind event_kind_parse(struct str name)
{
    for (unsigned k = EVENT_KIND_UNKNOWN + 1; k < EVENT_KIND_MAX; k++)
        if (str_eqc(name, kinds[k].name))
            return (enum event_kind)k;
    return EVENT_KIND_UNKNOWN;
}

bool event_kind_is_action(enum event_kind kind)
{
    return event_kind_info(kind)->action;
}

const char *event_source_name(enum event_source source)
{
    return sources[(unsigned)source < EVENT_SOURCE_MAX ? source : EVENT_SOURCE_UNKNOWN];
}

const char *event_grade_name(enum event_grade grade)
{
    return grades[(unsigned)grade < EVENT_GRADE_MAX ? grade : EVENT_GRADE_UNKNOWN];
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard decides about an action before it happens: it allows it, denies it, or asks somebody (hold.h). The core calls it for every action; it must answer at
 * once and must not call the core. A table of rules is the one there is so far.
 */
#pragma once

#include "base/str.h"
#include "event/event.h"
#include "guard/rules.h"

/* All of it is borrowed for the call. */
struct guard_question {
    const char *id; /* of the sandbox, the volume, or SERVICE_LOG_ID: also for what makes a sandbox or a volume */
    enum event_kind kind;
    struct str actor;
    struct str data; /* JSON object text, as it would be recorded: long values are cut there */
};

struct guard {
    /* ret_rule: what decided, for the record; it stays valid until the next call. */
    enum guard_verdict (*decide)(void *ctx, const struct guard_question *q, const char **ret_rule);
    void *ctx;
};

extern const struct guard guard_open; /* allows everything */

/* The first rule that fits decides. */
struct guard_rule {
    const char *name;     /* for the record */
    enum event_kind kind; /* EVENT_KIND_UNKNOWN: any */
    const char *actor;    /* prefix of the actor's name, NULL: any */
    enum guard_verdict verdict;
};

struct guard_rules {
    const struct guard_rule *rules;
    size_t n;
    enum guard_verdict otherwise; /* by the rule "default" */
};

/* For struct guard; ctx is a struct guard_rules. */
enum guard_verdict guard_rules_decide(void *ctx, const struct guard_question *q, const char **ret_rule);

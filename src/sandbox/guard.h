/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: decides about an action before it happens, by the first rule that matches. Internal to src/sandbox. */
#pragma once

#include "base/str.h"
#include "event/event.h"

enum guard_verdict { GUARD_ALLOW, GUARD_DENY };

struct guard_rule {
    const char *name;     /* for the record */
    enum event_kind kind; /* EVENT_KIND_UNKNOWN: any */
    const char *actor;    /* prefix of the actor's name, NULL: any */
    enum guard_verdict verdict;
};

struct guard {
    const struct guard_rule *rules;
    size_t n;
    enum guard_verdict otherwise;
};

extern const struct guard guard_open; /* allows everything */

/* ret_rule: the rule's name, "default" when none matched. */
enum guard_verdict guard_decide(const struct guard *g, enum event_kind kind, struct str actor, const char **ret_rule);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard decides about an action before it happens: it allows it, denies it, or asks somebody (hold.h). The core
 * calls it for every action; it must answer at once and must not call the core.
 *
 * Rules (guard/rules.h) are in force at four levels: for the service, a tenant, what is made from a template, and a
 * sandbox. Each level that has any is asked, and the strictest answer counts. A fork has the rules of its sandbox. What
 * Cove does by itself (actor.is_own, sandboxes of its own) and changes of rules are not judged by rules: the latter by
 * scope alone.
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
    uint64_t tenant;
    const struct exec_spec *exec; /* the whole command; NULL: data describes it. Not kept */
    bool wants_risk;              /* the risk is asked for, even where no rule counts it */
};

enum guard_level { GUARD_SERVICE, GUARD_TENANT, GUARD_TEMPLATE, GUARD_SANDBOX };

struct guard_answer {
    const char *rule;
    char text[GUARD_NAME_MAX + 16]; /* room for it */
    enum guard_level level;
    enum guard_risk risk;
    bool is_analysed;
    const char *reason; /* NULL: none; valid during the call */
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

/* ---- the rules in force ---- */

struct core;
struct actor;
struct sandbox;

/* Which level of what. */
struct guard_place {
    enum guard_level level;
    uint64_t tenant;         /* GUARD_TENANT, GUARD_TEMPLATE: of what this tenant makes from it */
    const char *template_id; /* GUARD_TEMPLATE */
    struct sandbox *sandbox; /* GUARD_SANDBOX */
};

const char *guard_level_name(enum guard_level level);
const json_t *guard_get(struct core *core, const struct guard_place *place); /* borrowed; NULL: it has none */
/* In force, and kept, when this returns 0. json NULL: none any more. An analyser is for GUARD_SERVICE alone. */
int guard_set(struct core *core, const struct actor *actor, const struct guard_place *place, const json_t *json,
              struct err *err) WARN_UNUSED;

/* What the rules say of this. ret_answer->reason stays valid until rules are changed. */
enum guard_verdict guard_judge(struct core *core, const struct guard_question *q, struct guard_answer *ret_answer);

/* A rule that answers this question from now on, in the level that asked; by: who says so. The right to change that
 * level is checked. */
struct hold_info;
int guard_remember(struct core *core, const struct actor *actor, const struct hold_info *info, bool is_allowed,
                   struct err *err) WARN_UNUSED;

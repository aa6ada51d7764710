/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard's rules, as people write them (docs/GUARD.md). A document is parsed once and never changes.
 *
 *   rails: {force-push: deny, credentials: ask}      shipped rules, by name; or a list: these ask
 *   rules:                                            the first one that fits and has a verdict decides
 *     - name: releases
 *       kind: exec.start                              or file.*, or a list
 *       argv: [git, push, [--tags, "v*"]]             the program, then words that follow in this order; a list: one of these
 *       verdict: ask                                  allow, ask or deny; without one, the rule only says the risk
 *   by_risk: {high: ask, unknown: ask}
 *   blocked_hosts: ask                                a host that the network policy blocks; deny
 *   otherwise: allow
 *   stuck: pause                                      who does the same again and again
 *   checkpoint: action                                files are kept after each
 *
 *  1. All matchers of a rule must fit. Patterns know "*" (also across "/"), "?" and "\"; a list is one of these.
 *  2. Rules decide before rails: a rule that allows exempts from all rails. Of several rails that fit, the strictest
 *     counts; so does by_risk.
 *  3. What a command runs is told by guard/shell.h, with its limits.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "event/event.h"
#include "guard/shell.h"

enum guard_verdict { GUARD_ALLOW, GUARD_ASK, GUARD_DENY }; /* the stricter, the greater */
enum guard_risk { RISK_LOW, RISK_UNKNOWN, RISK_MEDIUM, RISK_HIGH, RISK_MAX };
enum guard_stuck { STUCK_UNSET, STUCK_NOTIFY, STUCK_OFF, STUCK_PAUSE, STUCK_KILL };

/* When files are kept so that they can be put back (sandbox/life/checkpoint.h): after so many actions, or one of
 * these. */
enum {
    CHECKPOINT_UNSET = 0,
    CHECKPOINT_OFF = -1,
    CHECKPOINT_RISK = -2,
    CHECKPOINT_EACH_MAX = 1000000,
    CHECKPOINT_TEXT_MAX = 12
};
#define CHECKPOINT_WORDS "action, a number of actions, risk or off"
int checkpoint_mode_parse(struct str text, int *ret_mode) WARN_UNUSED; /* -EINVAL */
struct str checkpoint_mode_format(int mode, char buffer[static CHECKPOINT_TEXT_MAX]);

const char *guard_verdict_name(enum guard_verdict verdict);
const char *guard_risk_name(enum guard_risk risk);

enum { GUARD_RULES_MAX = 1000, GUARD_TEXT_MAX = 256 * 1024, GUARD_NAME_MAX = 96, RAILS_MAX = 16, RAIL_RULES_MAX = 16 };

struct rules;

/* ERR_INVALID_ARGUMENT names the place ("rules[3].argv: ...") and what to write there. */
int rules_parse(const json_t *json, struct rules **ret_rules, struct err *err) WARN_UNUSED;
void rules_free(struct rules *r);
DEFINE_AUTO(struct rules *, rules_free)
const json_t *rules_json(const struct rules *r); /* what it was parsed from */

/* What is to be judged. All but the last three members are the caller's; zero those, and call rules_action_fini(). */
struct rules_action {
    enum event_kind kind;
    struct str actor, id;   /* id: of the sandbox, or whatever else has the log */
    struct str data;        /* JSON object text: of the record */
    const struct str *argv; /* of exec.start, whole; NULL: as data has it, which may be cut */
    size_t n_argv;
    struct arena arena;
    json_t *json;
    struct shell_line *line;
};
void rules_action_fini(struct rules_action *a);

struct rules_answer {
    enum guard_verdict verdict;
    enum guard_risk risk;
    bool is_analysed;          /* it is allowed, if the analyser has nothing against it */
    char rule[GUARD_NAME_MAX]; /* what decided: a rule's name, "rail force-push", "risk high", "otherwise" */
    const char *reason;        /* of that rule, for people; NULL: it says none. As long as the rules live */
};
bool rules_is_unreadable(struct rules_action *a); /* a command of which only a run can tell what it does */
void rules_judge(const struct rules *r, struct rules_action *a, struct rules_answer *ret_answer);

struct rules_analyser {
    const char *url; /* NULL: there is none */
    uint64_t timeout_ms;
    unsigned events; /* so many of the log before are sent along */
    enum guard_verdict on_failure, by_risk[RISK_MAX];
};
const struct rules_analyser *rules_analyser(const struct rules *r);
enum guard_verdict rules_blocked_hosts(const struct rules *r); /* GUARD_ALLOW: they say nothing */
enum guard_stuck rules_stuck(const struct rules *r);
int rules_checkpoint(const struct rules *r);

/* The rails there are (rails.json; rails_test.c has examples of what fits), until name is NULL. rules: JSON text, an
 * array. */
struct rail {
    const char *name, *about, *rules;
    enum guard_risk risk;
};
extern const struct rail rails[];

bool rules_glob(struct str pattern, struct str text);

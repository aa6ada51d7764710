/* SPDX-License-Identifier: Apache-2.0 */
/* What a document is made of. All of it lives in the document's arena. */
#pragma once

#include "guard/rules.h"

struct patterns {
    const struct str *all;
    size_t n; /* 0: whatever it is */
};

struct rules_rule {
    const char *name, *reason;
    const char *rail; /* NULL: one of the document's own */
    bool kinds[EVENT_KIND_MAX];
    struct patterns actor, path, host, feeds;
    const struct patterns *argv; /* the program; words that must all be there */
    size_t n_argv;
    struct patterns command; /* exactly this argv */
    struct str sandbox;      /* n 0: any */
    uint64_t min_bytes, port;
    bool writes, runs_output, is_unreadable;
    bool wants_line; /* asks for what a command runs */
    bool has_verdict;
    enum guard_verdict verdict;
    enum guard_risk risk;
};

struct rules {
    struct arena arena;
    json_t *json;
    struct rules_rule *all; /* the document's own, then those of its rails */
    size_t n;
    enum guard_verdict otherwise, blocked_hosts, by_risk[RISK_MAX];
    bool rates; /* by_risk says something of what can't be read */
    struct rules_analyser analyser;
    bool analyses[EVENT_KIND_MAX];
    enum guard_stuck stuck;
    int checkpoint;
};

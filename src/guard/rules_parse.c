/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "guard/rules_internal.h"

enum { PATTERNS_MAX = 256, PATTERN_MAX = 4096, ANALYSER_MS = 3000, ANALYSER_MS_MAX = 20000, ANALYSER_EVENTS_MAX = 100 };

static const char *const verdicts[] = {"allow", "ask", "deny"};
static const char *const risks[] = {"low", "unknown", "medium", "high"};
static const char *const stucks[] = {"notify", "off", "pause", "kill"};

const char *guard_verdict_name(enum guard_verdict verdict)
{
    return verdicts[verdict];
}

const char *guard_risk_name(enum guard_risk risk)
{
    return risks[risk];
}

struct rules_parser {
    struct rules *rules;
    struct err *err;
    char place[64];
};

static int rules_refuse(const struct rules_parser *p, const char *member, const char *fmt, ...) PRINTF_LIKE(3, 4);

static int rules_refuse(const struct rules_parser *p, const char *member, const char *fmt, ...)
{
    char text[192];
    FORMAT_ARGS(text, fmt);
    return err_set(p->err, ERR_INVALID_ARGUMENT, "%s%s%.40s%s%s", p->place, *p->place && *member ? "." : "", member,
                   *p->place || *member ? ": " : "", text);
}

/* A word of a list; -1: refused. */
static int rules_word(const struct rules_parser *p, const char *member, const json_t *value, const char *const *words,
                      size_t n)
{
    char known[96] = "";
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (json_is_string(value) && strcmp(json_string_value(value), words[i]) == 0)
            return (int)i;
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? i + 1 < n ? ", " : " or " : "", words[i]);
    }
    return rules_refuse(p, member, "write %s", known);
}

static int rules_verdict(const struct rules_parser *p, const char *member, const json_t *value,
                         enum guard_verdict *ret_verdict)
{
    int v = rules_word(p, member, value, verdicts, ARRAY_SIZE(verdicts));
    if (v >= 0)
        *ret_verdict = (enum guard_verdict)v;
    return v < 0 ? -1 : 0;
}

static int rules_text(const struct rules_parser *p, const char *member, const json_t *value, struct str *ret_text)
{
    struct str text = json_str(value);
    if (!text.p || !text.n || text.n > PATTERN_MAX || str_has_nul(text))
        return rules_refuse(p, member, "write a text of 1 to %d bytes", PATTERN_MAX);
    *ret_text = arena_str(&p->rules->arena, text);
    return 0;
}

/* A text, or a list of them. */
static int rules_patterns(const struct rules_parser *p, const char *member, const json_t *value,
                          struct patterns *ret_patterns)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (n == 0 || n > PATTERNS_MAX)
        return rules_refuse(p, member, "write a text, or a list of 1 to %d", PATTERNS_MAX);
    struct str *all = arena_alloc(&p->rules->arena, n * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        if (rules_text(p, member, json_is_array(value) ? json_array_get(value, i) : value, &all[i]) < 0)
            return -1;
    *ret_patterns = (struct patterns){all, n};
    return 0;
}

static int rules_kinds(const struct rules_parser *p, const char *member, const json_t *value,
                       bool ret_kinds[static EVENT_KIND_MAX])
{
    struct patterns names = {0};
    if (rules_patterns(p, member, value, &names) < 0)
        return -1;
    for (size_t i = 0; i < names.n; i++) {
        bool is_known = false;
        for (unsigned k = 1; k < EVENT_KIND_MAX; k++)
            if (event_kind_is_action(k) && rules_glob(names.all[i], str_of(event_kind_name(k))))
                ret_kinds[k] = is_known = true;
        if (!is_known)
            return rules_refuse(p, member, "there is no action '%.40s'; write exec.start, file.*, net.policy, ...",
                                names.all[i].p);
    }
    return 0;
}

static int rules_number(const struct rules_parser *p, const char *member, const json_t *value, uint64_t max,
                        uint64_t *ret_number)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 || (uint64_t)json_integer_value(value) > max)
        return rules_refuse(p, member, "write a number from 1 to %llu", (unsigned long long)max);
    *ret_number = (uint64_t)json_integer_value(value);
    return 0;
}

static int rules_yes(const struct rules_parser *p, const char *member, const json_t *value, bool *ret_is_set)
{
    if (!json_is_true(value))
        return rules_refuse(p, member, "write true, or leave it out");
    *ret_is_set = true;
    return 0;
}

static int rules_argv(const struct rules_parser *p, const char *member, const json_t *value, struct rules_rule *rule)
{
    size_t n = json_array_size(value);
    if (n == 0 || n > 32)
        return rules_refuse(p, member, "write a list: the program, then words: [git, push, --force]");
    struct patterns *all = arena_alloc(&p->rules->arena, n * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        if (rules_patterns(p, member, json_array_get(value, i), &all[i]) < 0)
            return -1;
    rule->argv = all;
    rule->n_argv = n;
    return 0;
}

static int rules_rule_member(struct rules_parser *p, struct rules_rule *rule, const char *m, const json_t *v)
{
    static const char *const accesses[] = {"any", "write"};
    struct str text = STR_NULL;
    int r;
    if (strcmp(m, "kind") == 0)
        return rules_kinds(p, m, v, rule->kinds);
    if (strcmp(m, "actor") == 0)
        return rules_patterns(p, m, v, &rule->actor);
    if (strcmp(m, "path") == 0)
        return rules_patterns(p, m, v, &rule->path);
    if (strcmp(m, "host") == 0)
        return rules_patterns(p, m, v, &rule->host);
    if (strcmp(m, "feeds") == 0)
        return rules_patterns(p, m, v, &rule->feeds);
    if (strcmp(m, "command") == 0)
        return rules_patterns(p, m, v, &rule->command);
    if (strcmp(m, "argv") == 0)
        return rules_argv(p, m, v, rule);
    if (strcmp(m, "sandbox") == 0)
        return rules_text(p, m, v, &rule->sandbox);
    if (strcmp(m, "min_bytes") == 0)
        return rules_number(p, m, v, INT64_MAX, &rule->min_bytes);
    if (strcmp(m, "port") == 0)
        return rules_number(p, m, v, UINT16_MAX, &rule->port);
    if (strcmp(m, "runs_output") == 0)
        return rules_yes(p, m, v, &rule->runs_output);
    if (strcmp(m, "unreadable") == 0)
        return rules_yes(p, m, v, &rule->is_unreadable);
    if (strcmp(m, "access") == 0) {
        r = rules_word(p, m, v, accesses, ARRAY_SIZE(accesses));
        rule->writes = r == 1;
        return r < 0 ? -1 : 0;
    }
    if (strcmp(m, "verdict") == 0) {
        rule->has_verdict = true;
        return rules_verdict(p, m, v, &rule->verdict);
    }
    if (strcmp(m, "risk") == 0) {
        r = rules_word(p, m, v, risks, ARRAY_SIZE(risks));
        rule->risk = r < 0 ? RISK_LOW : (enum guard_risk)r;
        return r < 0 ? -1 : 0;
    }
    if (strcmp(m, "by") == 0 || strcmp(m, "at") == 0) /* who made it, and when: for people */
        return rules_text(p, m, v, &text);
    if (strcmp(m, "name") == 0 || strcmp(m, "reason") == 0) {
        if (rules_text(p, m, v, &text) < 0)
            return -1;
        *(*m == 'n' ? &rule->name : &rule->reason) = text.p;
        return 0;
    }
    return rules_refuse(p, m,
                        "no such member; there are name, kind, actor, sandbox, argv, command, feeds, path, access, "
                        "host, port, min_bytes, runs_output, unreadable, verdict, risk and reason");
}

/* What it says nothing of is what its other members can be about. */
static int rules_rule_end(struct rules_parser *p, struct rules_rule *rule)
{
    bool has_kind = false, is_exec;
    for (unsigned k = 0; k < EVENT_KIND_MAX; k++)
        has_kind |= rule->kinds[k];
    is_exec = rule->n_argv || rule->feeds.n || rule->runs_output || rule->is_unreadable || rule->command.n;
    rule->wants_line =
        rule->n_argv || rule->feeds.n || rule->runs_output || rule->is_unreadable || rule->path.n || rule->host.n;
    if ((rule->feeds.n || rule->runs_output) && !rule->n_argv)
        return rules_refuse(p, "", "feeds and runs_output say more of a command: write argv, too");
    for (unsigned k = 1; !has_kind && k < EVENT_KIND_MAX; k++)
        rule->kinds[k] =
            is_exec ? k == EVENT_EXEC_START
                    : (rule->path.n && (k == EVENT_EXEC_START || (k >= EVENT_FILE_READ && k <= EVENT_FILE_WATCH))) ||
                          (rule->host.n && (k == EVENT_EXEC_START || k == EVENT_NET_POLICY)) ||
                          (rule->port && k == EVENT_DIAL);
    if (!has_kind && !is_exec && !rule->path.n && !rule->host.n && !rule->port)
        return rules_refuse(p, "", "it doesn't say what it is about: write a kind, \"*\" for every action");
    if (!rule->has_verdict && !rule->risk && !rule->rail)
        return rules_refuse(p, "", "write a verdict: allow, ask or deny; or a risk");
    return 0;
}

static int rules_list(struct rules_parser *p, const json_t *list, const struct rail *rail, enum guard_verdict verdict)
{
    if (!json_is_array(list) || json_array_size(list) > GUARD_RULES_MAX)
        return rules_refuse(p, "rules", "write a list of at most %d rules", GUARD_RULES_MAX);
    JSON_FOREACH_AT (i, one, list) {
        struct rules_rule *rule = &p->rules->all[p->rules->n++];
        if (rail)
            *rule =
                (struct rules_rule){.rail = rail->name, .risk = rail->risk, .verdict = verdict, .reason = rail->about};
        (void)snprintf(p->place, sizeof(p->place), "%s[%zu]", rail ? rail->name : "rules", i);
        if (!json_is_object(one))
            return rules_refuse(p, "", "write a mapping: kind, argv, path, ..., verdict");
        JSON_FOREACH_MEMBER (name, value, one)
            if (rules_rule_member(p, rule, name, value) < 0)
                return -1;
        if (rules_rule_end(p, rule) < 0)
            return -1;
        if (!rule->name)
            rule->name = arena_printf(&p->rules->arena, "%s", p->place);
    }
    *p->place = '\0';
    return 0;
}

static int rules_rail(struct rules_parser *p, const char *name, const json_t *verdict)
{
    enum guard_verdict v = GUARD_ASK;
    size_t i = 0;
    while (rails[i].name && strcmp(rails[i].name, name) != 0)
        i++;
    if (!rails[i].name)
        return rules_refuse(p, "rails", "there is no rail '%.40s'; 'cove guard rails' lists them", name);
    char place[64];
    (void)snprintf(place, sizeof(place), "rails.%.40s", name);
    if (verdict && rules_verdict(p, place, verdict, &v) < 0)
        return -1;
    json_t *list = json_loads(rails[i].rules, JSON_REJECT_DUPLICATES, NULL);
    assert(list && json_array_size(list) <= RAIL_RULES_MAX);
    int r = rules_list(p, list, &rails[i], v);
    json_decref(list);
    return r;
}

static int rules_rails(struct rules_parser *p, const json_t *value)
{
    JSON_FOREACH_AT (i, one, value) {
        if (!json_is_string(one) || i >= RAILS_MAX)
            return rules_refuse(p, "rails", "write names of rails");
        if (rules_rail(p, json_string_value(one), NULL) < 0)
            return -1;
    }
    JSON_FOREACH_MEMBER (name, one, value)
        if (rules_rail(p, name, one) < 0)
            return -1;
    return json_is_array(value) || json_is_object(value) ? 0
                                                         : rules_refuse(p, "rails", "write a list, or NAME: VERDICT");
}

static int rules_by_risk(struct rules_parser *p, const char *member, const json_t *value,
                         enum guard_verdict ret_by_risk[static RISK_MAX])
{
    if (!json_is_object(value))
        return rules_refuse(p, member, "write RISK: VERDICT");
    JSON_FOREACH_MEMBER (name, one, value) {
        json_t *text = json_string(name);
        char place[64];
        (void)snprintf(place, sizeof(place), "%s.%.20s", member, name);
        int risk = rules_word(p, member, text, risks, ARRAY_SIZE(risks));
        json_decref(text);
        if (risk < 0 || rules_verdict(p, place, one, &ret_by_risk[risk]) < 0)
            return -1;
    }
    return 0;
}

static int rules_parse_analyser(struct rules_parser *p, const json_t *value)
{
    struct rules_analyser *a = &p->rules->analyser;
    struct str url = STR_NULL;
    uint64_t n = 0;
    bool has_kinds = false;
    *a = (struct rules_analyser){.timeout_ms = ANALYSER_MS, .on_failure = GUARD_DENY};
    a->by_risk[RISK_HIGH] = GUARD_ASK;
    (void)snprintf(p->place, sizeof(p->place), "analyser");
    JSON_FOREACH_MEMBER (name, one, value) {
        int r = -1;
        if (strcmp(name, "url") == 0) {
            r = rules_text(p, name, one, &url);
            if (r == 0 && !str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
                r = rules_refuse(p, name, "write http://... or https://...");
            a->url = r == 0 ? url.p : NULL;
        } else if (strcmp(name, "timeout_ms") == 0) {
            r = rules_number(p, name, one, ANALYSER_MS_MAX, &a->timeout_ms);
        } else if (strcmp(name, "events") == 0) {
            r = rules_number(p, name, one, ANALYSER_EVENTS_MAX, &n);
            a->events = r == 0 ? (unsigned)n : 0;
        } else if (strcmp(name, "on_failure") == 0) {
            r = rules_verdict(p, name, one, &a->on_failure);
        } else if (strcmp(name, "by_risk") == 0) {
            r = rules_by_risk(p, name, one, a->by_risk);
        } else if (strcmp(name, "kind") == 0) {
            has_kinds = true;
            r = rules_kinds(p, name, one, p->rules->analyses);
        } else {
            (void)rules_refuse(p, name,
                               "no such member; there are url, kind, timeout_ms, events, by_risk and on_failure");
        }
        if (r < 0)
            return -1;
    }
    p->rules->analyses[EVENT_EXEC_START] |= !has_kinds;
    if (!a->url)
        return rules_refuse(p, "url", "write where it listens: http://127.0.0.1:9000/judge");
    *p->place = '\0';
    return 0;
}

int checkpoint_mode_parse(struct str text, int *ret_mode)
{
    uint64_t n = 1;
    bool is_word = str_eqc(text, "action") || str_eqc(text, "risk") || str_eqc(text, "off");
    if (!is_word && (str_to_u64(text, &n) < 0 || n < 1 || n > CHECKPOINT_EACH_MAX))
        return -EINVAL;
    *ret_mode = str_eqc(text, "risk") ? CHECKPOINT_RISK : str_eqc(text, "off") ? CHECKPOINT_OFF : (int)n;
    return 0;
}

struct str checkpoint_mode_format(int mode, char buffer[static CHECKPOINT_TEXT_MAX])
{
    if (mode <= 1)
        return str_of(mode == CHECKPOINT_RISK ? "risk" : mode == 1 ? "action" : "off");
    (void)snprintf(buffer, CHECKPOINT_TEXT_MAX, "%d", mode);
    return str_of(buffer);
}

static int rules_parse_checkpoint(const struct rules_parser *p, const char *member, const json_t *value)
{
    char number[24];
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        (void)snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
    }
    if (text && checkpoint_mode_parse(str_of(text), &p->rules->checkpoint) == 0)
        return 0;
    return rules_refuse(p, member, "write %s", CHECKPOINT_WORDS);
}

static int rules_document(struct rules_parser *p, const json_t *json)
{
    int r = json_is_object(json) ? 0 : rules_refuse(p, "", "write a mapping: rails, rules, by_risk, otherwise, stuck");
    if (r == 0 && json_object_get(json, "rules")) /* before the rails, whatever the order */
        r = rules_list(p, json_object_get(json, "rules"), NULL, GUARD_ALLOW);
    JSON_FOREACH_MEMBER (name, one, json) {
        if (r < 0 || strcmp(name, "rules") == 0)
            continue;
        if (strcmp(name, "rails") == 0) {
            r = rules_rails(p, one);
        } else if (strcmp(name, "by_risk") == 0) {
            r = rules_by_risk(p, name, one, p->rules->by_risk);
        } else if (strcmp(name, "otherwise") == 0) {
            r = rules_verdict(p, name, one, &p->rules->otherwise);
        } else if (strcmp(name, "blocked_hosts") == 0) {
            r = rules_verdict(p, name, one, &p->rules->blocked_hosts);
            if (r == 0 && p->rules->blocked_hosts == GUARD_ALLOW)
                r = rules_refuse(p, name, "write ask or deny; the network policy says what is allowed");
        } else if (strcmp(name, "analyser") == 0) {
            r = rules_parse_analyser(p, one);
        } else if (strcmp(name, "stuck") == 0) {
            r = rules_word(p, name, one, stucks, ARRAY_SIZE(stucks));
            p->rules->stuck = (enum guard_stuck)(STUCK_NOTIFY + r);
        } else if (strcmp(name, "checkpoint") == 0) {
            r = rules_parse_checkpoint(p, name, one);
        } else {
            r = rules_refuse(p, name,
                             "no such member; there are rails, rules, by_risk, blocked_hosts, otherwise, analyser, "
                             "stuck, checkpoint");
        }
    }
    return r < 0 ? -1 : 0;
}

int rules_parse(const json_t *json, struct rules **ret_rules, struct err *err)
{
    AUTO(rules_free) struct rules *r = mem_new(struct rules);
    struct rules_parser p = {.rules = r, .err = err};
    size_t n = json_array_size(json_object_get(json, "rules"));
    if (json_dumpb(json, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) > GUARD_TEXT_MAX)
        return rules_refuse(&p, "", "more than %d KiB of rules", GUARD_TEXT_MAX / 1024);
    r->all = mem_array(MIN(n, (size_t)GUARD_RULES_MAX) + RAILS_MAX * RAIL_RULES_MAX, sizeof(*r->all));
    r->json = json_deep_copy(json);
    if (rules_document(&p, json) < 0)
        return -1;
    for (size_t i = 1; i < RISK_MAX; i++)
        r->rates |= r->by_risk[i] != GUARD_ALLOW;
    *ret_rules = TAKE_PTR(r);
    return 0;
}

void rules_free(struct rules *r)
{
    if (!r)
        return;
    arena_fini(&r->arena);
    json_decref(r->json);
    MEM_FREE(r->all, r);
}

const json_t *rules_json(const struct rules *r)
{
    return r->json;
}

enum guard_verdict rules_blocked_hosts(const struct rules *r)
{
    return r->blocked_hosts;
}

const struct rules_analyser *rules_analyser(const struct rules *r)
{
    return &r->analyser;
}

int rules_checkpoint(const struct rules *r)
{
    return r->checkpoint;
}

enum guard_stuck rules_stuck(const struct rules *r)
{
    return r->stuck;
}

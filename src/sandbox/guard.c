/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/guard.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/exec/exec.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/hold.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

/* The rules of a level that has no sandbox. They are read from the store when they are first needed. */
struct guard_entry {
    char *key;
    struct rules *rules; /* NULL: none */
    bool is_bad;         /* there are some that this version can't read: everything is denied */
};

struct guards {
    struct core *core;
    struct map by_key;
};

static struct guard_rules guard_no_rules = {.otherwise = GUARD_ALLOW};
const struct guard guard_open = {.decide = guard_rules_decide, .ctx = &guard_no_rules};

enum guard_verdict guard_rules_decide(void *ctx, const struct guard_question *q, const char **ret_rule)
{
    const struct guard_rules *g = ctx;
    for (size_t i = 0; i < g->n; i++) {
        const struct guard_rule *rule = &g->rules[i];
        if (rule->kind != EVENT_KIND_UNKNOWN && rule->kind != q->kind)
            continue;
        if (rule->actor && !str_starts(q->actor, str_of(rule->actor)))
            continue;
        *ret_rule = rule->name;
        return rule->verdict;
    }
    *ret_rule = "default";
    return g->otherwise;
}

const char *guard_level_name(enum guard_level level)
{
    static const char *const names[] = {"service", "tenant", "template", "sandbox"};
    return names[level];
}

void guard_describe(struct event_data *d, const struct guard_answer *answer)
{
    event_data_str(d, "rule", str_of(answer->rule));
    if (answer->risk)
        event_data_str(d, "risk", str_of(guard_risk_name(answer->risk)));
    EVENT_DATA_PUT(d, DATA_SOME("reason", str_of(answer->reason)));
}

/* ---- where rules are kept ---- */

enum { GUARD_KEY_MAX = 192 };

static void guard_key(const struct guard_place *place, char ret_key[static GUARD_KEY_MAX])
{
    if (place->level == GUARD_SERVICE)
        (void)snprintf(ret_key, GUARD_KEY_MAX, "guard");
    else if (place->level == GUARD_TENANT)
        (void)snprintf(ret_key, GUARD_KEY_MAX, "guard.tenant.%llu", (unsigned long long)place->tenant);
    else
        (void)snprintf(ret_key, GUARD_KEY_MAX, "guard.template.%llu.%s", (unsigned long long)place->tenant,
                       place->template_id);
}

static int guard_load(struct core *core, struct guard_entry *e, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(2 * GUARD_TEXT_MAX);
    int r = meta_get(core->config.store, e->key, &text, err);
    if (r <= 0)
        return r;
    json_t *json = json_loadb(buf_data(&text), buf_len(&text), 0, NULL);
    r = json ? rules_parse(json, &e->rules, err) : err_set(err, ERR_DATA_LOSS, "no JSON");
    json_decref(json);
    return r;
}

static struct guard_entry *guard_entry(struct core *core, const struct guard_place *place)
{
    char key[GUARD_KEY_MAX];
    struct err err;
    guard_key(place, key);
    struct guard_entry *e = map_get(&core->guards->by_key, str_of(key));
    if (e)
        return e;
    e = mem_new(struct guard_entry);
    e->key = mem_strdup(key);
    (void)map_put(&core->guards->by_key, str_of(key), e);
    if (guard_load(core, e, &err) < 0) {
        e->is_bad = true;
        log_error("the guard's rules '%s' can't be read, so everything they cover is denied until new ones are set: "
                  "%s",
                  key, err.msg);
    }
    return e;
}

struct guards *guards_new(struct core *core)
{
    struct guards *all = mem_new(struct guards);
    all->core = core;
    return all;
}

static void guard_entry_free(struct guard_entry *e)
{
    rules_free(e->rules);
    MEM_FREE(e->key, e);
}

void guards_free(struct guards *all)
{
    MAP_FOREACH (struct guard_entry, e, &all->by_key)
        guard_entry_free(e);
    map_fini(&all->by_key);
    mem_free(all);
}

void guard_fill(struct sandbox *sb, const json_t *json)
{
    struct err err;
    if (json && rules_parse(json, &sb->rules, &err) < 0) {
        log_error("the guard's rules of sandbox %s can't be read, so it may do nothing until new ones are set: %s",
                  sb->info.id, err.msg);
        json_t *deny = json_pack("{s:s}", "otherwise", "deny");
        if (rules_parse(deny, &sb->rules, &err) < 0)
            sb->rules = NULL;
        json_decref(deny);
    }
}

void guard_inherit(struct sandbox *sb, const struct sandbox *from)
{
    if (from->rules)
        guard_fill(sb, rules_json(from->rules));
}

void guard_forget_tenant(struct core *core, uint64_t tenant)
{
    const struct guard_place place = {.level = GUARD_TENANT, .tenant = tenant};
    struct guard_entry *e = guard_entry(core, &place);
    struct err err;
    if (meta_delete(core->config.store, e->key, &err) < 0)
        core_unrecorded(core, &err);
    (void)map_del(&core->guards->by_key, str_of(e->key));
    guard_entry_free(e);
}

const json_t *guard_get(struct core *core, const struct guard_place *place)
{
    const struct rules *r = place->sandbox ? place->sandbox->rules : guard_entry(core, place)->rules;
    return r ? rules_json(r) : NULL;
}

const struct rules_analyser *guard_analyser(struct core *core)
{
    static const struct rules_analyser none = {.url = NULL};
    const struct rules *r = guard_entry(core, &(struct guard_place){.level = GUARD_SERVICE})->rules;
    return r ? rules_analyser(r) : &none;
}

/* ---- judging ---- */

static void guard_levels(struct core *core, uint64_t tenant, const struct sandbox *sb,
                         const struct guard_entry *ret_levels[static GUARD_SANDBOX])
{
    ret_levels[GUARD_SERVICE] = guard_entry(core, &(struct guard_place){.level = GUARD_SERVICE});
    ret_levels[GUARD_TENANT] = guard_entry(core, &(struct guard_place){.level = GUARD_TENANT, .tenant = tenant});
    ret_levels[GUARD_TEMPLATE] = sb ? guard_entry(core, &(struct guard_place){.level = GUARD_TEMPLATE,
                                                                              .tenant = tenant,
                                                                              .template_id = sb->info.template_id})
                                    : NULL;
}

int guard_checkpoint_of(const struct sandbox *sb)
{
    const struct guard_entry *levels[GUARD_SANDBOX];
    int mode = sb->rules ? rules_checkpoint(sb->rules) : CHECKPOINT_UNSET;
    guard_levels(sb->core, sb->info.tenant, sb, levels);
    for (int i = GUARD_TEMPLATE; i >= 0 && !mode; i--)
        if (levels[i]->rules)
            mode = rules_checkpoint(levels[i]->rules);
    return mode;
}

enum guard_stuck guard_stuck_of(const struct sandbox *sb)
{
    const struct guard_entry *levels[GUARD_SANDBOX];
    enum guard_stuck stuck = sb->rules ? rules_stuck(sb->rules) : STUCK_UNSET;
    guard_levels(sb->core, sb->info.tenant, sb, levels);
    for (int i = GUARD_TEMPLATE; i >= 0 && stuck == STUCK_UNSET; i--)
        if (levels[i]->rules)
            stuck = rules_stuck(levels[i]->rules);
    return stuck == STUCK_UNSET ? STUCK_NOTIFY : stuck;
}

/* The strictest of those that say something. */
bool guard_asks_hosts(const struct sandbox *sb)
{
    const struct guard_entry *levels[GUARD_SANDBOX];
    enum guard_verdict verdict = sb->rules ? rules_blocked_hosts(sb->rules) : GUARD_ALLOW;
    guard_levels(sb->core, sb->info.tenant, sb, levels);
    for (int i = GUARD_SERVICE; i < GUARD_SANDBOX; i++)
        if (levels[i]->rules)
            verdict = MAX(verdict, rules_blocked_hosts(levels[i]->rules));
    return verdict == GUARD_ASK;
}

static enum guard_verdict guard_of_level(const struct rules *rules, enum guard_level level, struct rules_action *a,
                                         enum guard_verdict before, struct guard_answer *answer)
{
    struct rules_answer by;
    rules_judge(rules, a, &by);
    answer->risk = MAX(answer->risk, by.risk);
    answer->is_analysed |= by.is_analysed;
    if (by.verdict <= before)
        return before;
    (void)snprintf(answer->text, sizeof(answer->text), "%s: %s", guard_level_name(level), by.rule);
    answer->rule = answer->text;
    answer->level = level;
    answer->reason = by.reason;
    return by.verdict;
}

enum guard_verdict guard_judge(struct core *core, const struct guard_question *q, struct guard_answer *ret_answer)
{
    const struct sandbox *sb = map_get(&core->by_id, str_of(q->id));
    const struct guard_entry *levels[GUARD_SANDBOX];
    enum guard_verdict verdict = GUARD_ALLOW;
    struct rules_action a = {.kind = q->kind, .actor = q->actor, .id = str_of(q->id), .data = q->data};
    if (q->kind == EVENT_GUARD_SET || (sb && sb->info.hidden))
        return GUARD_ALLOW;
    if (q->exec) {
        struct str *argv = arena_alloc(&a.arena, (q->exec->n_args + 1) * sizeof(*argv));
        argv[0] = q->exec->cmd;
        if (q->exec->n_args)
            memcpy(argv + 1, q->exec->args, q->exec->n_args * sizeof(*argv));
        a.argv = argv;
        a.n_argv = q->exec->n_args + 1;
    }
    guard_levels(core, q->tenant, sb, levels);
    for (int i = GUARD_SERVICE; i < GUARD_SANDBOX; i++) {
        if (levels[i] && levels[i]->is_bad) {
            ret_answer->rule = "rules that can't be read";
            rules_action_fini(&a);
            return GUARD_DENY;
        }
        if (levels[i] && levels[i]->rules)
            verdict = guard_of_level(levels[i]->rules, (enum guard_level)i, &a, verdict, ret_answer);
    }
    if (sb && sb->rules)
        verdict = guard_of_level(sb->rules, GUARD_SANDBOX, &a, verdict, ret_answer);
    if (q->wants_risk && ret_answer->risk == RISK_LOW && rules_is_unreadable(&a))
        ret_answer->risk = RISK_UNKNOWN;
    rules_action_fini(&a);
    ret_answer->is_analysed &= verdict == GUARD_ALLOW;
    if (!ret_answer->is_analysed)
        return verdict;
    ret_answer->rule = "analyser";
    return GUARD_ASK;
}

/* ---- changing ---- */

static int guard_record(struct core *core, const struct actor *actor, const struct guard_place *place,
                        const json_t *json, uint64_t *ret_seq, struct err *err)
{
    AUTO_FREE char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("level", guard_level_name(place->level)));
    if (place->level == GUARD_TENANT || place->level == GUARD_TEMPLATE)
        event_data_u64(&d, "tenant", place->tenant);
    if (place->level == GUARD_TEMPLATE)
        event_data_str(&d, "template", str_of(place->template_id));
    if (text)
        event_data_json(&d, "rules", str_of(text));
    return action_on(core, place->sandbox ? place->sandbox->info.id : SERVICE_LOG_ID, actor, EVENT_GUARD_SET,
                     event_data_end(&d), ret_seq, err);
}

int guard_set(struct core *core, const struct actor *actor, const struct guard_place *place, const json_t *json,
              struct err *err)
{
    AUTO(rules_free) struct rules *rules = NULL;
    struct sandbox *sb = place->sandbox;
    struct guard_entry *e = sb ? NULL : guard_entry(core, place);
    struct rules **now = sb ? &sb->rules : &e->rules, *before = *now;
    AUTO_FREE char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    uint64_t seq;
    if (json && rules_parse(json, &rules, err) < 0)
        return -1;
    if (rules && rules_analyser(rules)->url && place->level != GUARD_SERVICE)
        return err_set(err, ERR_INVALID_ARGUMENT, "analyser: only the service's rules can have one");
    if (sb && sandbox_state_is_over(sb->info.state))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (guard_record(core, actor, place, json, &seq, err) < 0)
        return -1;
    *now = rules;
    int r = 0;
    if (sb)
        rows_extra(sb);
    else if (!json)
        r = meta_delete(core->config.store, e->key, err);
    else
        r = meta_put(core->config.store, e->key, str_of(text), err);
    if (action_end(core, actor, seq, EVENT_GUARD_SET, r < 0 ? r : keeper_commit(core->keeper, err), err) < 0) {
        *now = before;
        return -1;
    }
    rules = before; /* freed */
    if (e)
        e->is_bad = false;
    return 0;
}

/* ---- answers that are remembered ---- */

/* As a pattern that fits nothing else. */
static json_t *guard_exact(const char *text)
{
    AUTO_BUF struct buf b = BUF_INIT(16384);
    for (; *text; text++) {
        if (strchr("*?[\\", *text))
            (void)buf_append_char(&b, '\\');
        (void)buf_append_char(&b, *text);
    }
    return json_stringn(buf_data(&b), buf_len(&b));
}

static json_t *guard_rule_of(const struct hold_info *info, const char *by, bool is_allowed, struct err *err)
{
    const struct guard_question *q = &info->question;
    char at[CLOCK_TEXT_MAX];
    json_t *data = json_loadb(q->data.p, q->data.n, 0, NULL), *rule;
    const json_t *cmd = json_object_get(data, "cmd"), *args = json_object_get(data, "args");
    const char *path = json_string_value(json_object_get(data, "path"));
    bool is_whole = !json_object_get(data, "args_cut") && !json_object_get(data, "truncated");
    clock_format(clock_real(), 0, at);
    rule = json_pack("{s:s+,s:s,s:s,s:s,s:s,s:s}", "name", is_allowed ? "approved-" : "denied-", info->id, "kind",
                     event_kind_name(q->kind), "sandbox", q->id, "verdict", is_allowed ? "allow" : "deny", "by", by,
                     "at", at);
    if (q->kind == EVENT_EXEC_START && cmd && args && is_whole) {
        json_t *command = json_array();
        (void)json_array_append(command, (json_t *)cmd);
        (void)json_array_extend(command, (json_t *)args);
        (void)json_object_set_new(rule, "command", command);
    } else if (q->kind >= EVENT_FILE_READ && q->kind <= EVENT_FILE_WATCH && q->kind != EVENT_FILE_MOVE && path &&
               *path == '/' && is_whole) {
        (void)json_object_set_new(rule, "path", guard_exact(path));
    } else {
        json_decref(rule);
        rule = NULL;
        (void)err_set(err, ERR_INVALID_ARGUMENT,
                      "--always only works for whole commands and absolute paths: answer this once, or write a rule");
    }
    json_decref(data);
    return rule;
}

/* Without what was remembered of sandboxes that are gone. */
static json_t *guard_kept(struct core *core, const json_t *rules)
{
    json_t *kept = json_array();
    JSON_FOREACH (one, rules) {
        const char *id = json_string_value(json_object_get(one, "sandbox"));
        if (!id || !json_object_get(one, "by") || map_get(&core->by_id, str_of(id)))
            (void)json_array_append(kept, one);
    }
    return kept;
}

int guard_remember(struct core *core, const struct actor *actor, const struct hold_info *info, bool is_allowed,
                   struct err *err)
{
    struct sandbox *sb = map_get(&core->by_id, str_of(info->question.id));
    struct guard_place place = {.level = info->answer.level, .tenant = info->question.tenant};
    if (!sb)
        return err_set(err, ERR_INVALID_ARGUMENT, "--always only works for actions on a sandbox");
    place.template_id = sb->info.template_id;
    place.sandbox = place.level == GUARD_SANDBOX ? sb : NULL;
    if (actor->who.scope < (place.level == GUARD_SERVICE ? SCOPE_OPERATOR : SCOPE_ADMIN))
        return err_set(err, ERR_PERMISSION_DENIED,
                       "remembering it would change the %s's rules, which your key may "
                       "not do",
                       guard_level_name(place.level));
    json_t *rule = guard_rule_of(info, actor->name, is_allowed, err);
    if (!rule)
        return -1;
    json_t *json = json_copy((json_t *)guard_get(core, &place));
    json_t *rules = guard_kept(core, json_object_get(json, "rules"));
    (void)json_array_insert_new(rules, 0, rule);
    (void)json_object_set_new(json, "rules", rules);
    int r = guard_set(core, actor, &place, json, err);
    json_decref(json);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/action.h"
#include "base/log.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/hold.h"
#include "sandbox/key.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/tenant.h"

#include <string.h>

enum { PRUNE_EACH = 500, NOTES_MAX = 20, NOTES_MS = 10000, DENIALS_MAX = 100, DENIALS_MS = 1000 };

void core_unrecorded(struct core *core, const struct err *err)
{
    if (core->unrecorded++ == 0)
        log_error("an event or a row could not be stored: %s", err->msg);
}

void actor_take(struct actor *actor, struct arena *arena, const char *name, const struct principal *who)
{
    actor->name = arena_strdup(arena, name);
    actor->who = *who;
    actor->who.key = arena_strdup(arena, who->key);
    actor->who.name = arena_strdup(arena, who->name);
    actor->who.sandbox = arena_strdup(arena, who->sandbox);
}

int sandbox_usable(const struct sandbox *sb, struct err *err)
{
    if (sandbox_state_is_over(sb->info.state))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (sb->info.state != SANDBOX_RUNNING)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is %s", sb->info.id,
                       sandbox_state_name(sb->info.state));
    if (sb->core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    return 0;
}

/* ---- the log ---- */

/* limit NULL: none. The log of a sandbox is shortened by history.c. */
static int action_append(struct core *core, const struct event_draft *draft, const struct event_limit *limit,
                         uint64_t *ret_seq, struct err *err)
{
    struct event_log *log = core->config.events;
    int r = limit ? event_append_limited(log, draft, limit, ret_seq, err) : event_append(log, draft, ret_seq, err);
    if (r < 0) {
        core_unrecorded(core, err);
        return -1;
    }
    keeper_wrote(core->keeper);
    uint64_t seq = *ret_seq;
    struct err local;
    if (seq > LOG_KEEP && seq % PRUNE_EACH == 0 && !id_is_sandbox(str_of(draft->sandbox)) &&
        event_prune(log, draft->sandbox, seq - LOG_KEEP, &local) < 0)
        core_unrecorded(core, &local);
    return 0;
}

static bool action_frees_room(enum event_kind kind)
{
    return kind == EVENT_SANDBOX_KILL || kind == EVENT_TEMPLATE_REMOVE || kind == EVENT_VOLUME_DROP ||
           kind == EVENT_POOL_COLLECT;
}

/*
 * An action that can't be recorded is not done. While the last batch was lost nobody can know before trying. What frees
 * room always tries: it has room of its own, which others don't get.
 */
static int action_append_action(struct core *core, const struct event_draft *draft, const struct event_limit *limit,
                                uint64_t *ret_seq, struct err *err)
{
    struct record_keeper *k = core->keeper;
    const bool frees = action_frees_room(draft->kind);
    int r;
    if (!frees && keeper_is_lending(k)) {
        (void)err_set(err, ERR_RESOURCE_EXHAUSTED, "the store's disk is full, but for what frees room");
        return err_prefix(err, "record the action");
    }
    do {
        *ret_seq = 0;
        r = action_append(core, draft, limit, ret_seq, err);
        if (r == 0)
            keeper_acts(k);
        if (r == 0 && (frees || keeper_fails(k)))
            r = keeper_commit(k, err);
    } while (r < 0 && frees && err->code == ERR_RESOURCE_EXHAUSTED && keeper_lend(k));
    /* But for the end: who fills the disk must not become immortal by it. */
    return r < 0 && draft->kind != EVENT_SANDBOX_KILL ? err_prefix(err, "record the action") : 0;
}

/* The service's log is each tenant's own. */
static const char *action_log(struct core *core, const char *id, uint64_t tenant)
{
    return strcmp(id, SERVICE_LOG_ID) == 0 ? tenant_log(core, tenant) : id;
}

static struct event_draft action_draft(struct core *core, const char *id, const struct actor *actor,
                                       enum event_kind kind, struct str data)
{
    return (struct event_draft){.sandbox = action_log(core, id, actor->who.tenant),
                                .kind = kind,
                                .source = EVENT_CLIENT,
                                .grade = EVENT_OBSERVED_HOST,
                                .actor = str_of(actor->name),
                                .data = data};
}

/* ---- the guard ---- */

static void action_note_denial(struct core *core, const struct guard_question *q, const char *actor,
                               const struct guard_answer *answer, const char *why)
{
    static const struct event_limit limit = {DENIALS_MAX, DENIALS_MS * USEC_PER_MS};
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("kind", event_kind_name(q->kind)));
    guard_describe(&d, answer);
    EVENT_DATA_PUT(&d, DATA_SOME("why", why), DATA_JSON("action", q->data));
    struct event_draft draft = action_draft(core, q->id, &(struct actor){.name = actor, .who.tenant = q->tenant},
                                            EVENT_GUARD_DENIED, event_data_end(&d));
    struct err err;
    uint64_t seq;
    draft.source = EVENT_HOST;
    (void)!action_append(core, &draft, &limit, &seq, &err);
}

/* *ret_hold: what allowed it; NULL: the guard by itself. */
static int action_gate(struct core *core, const char *id, const struct actor *actor, enum event_kind kind,
                       struct str data, struct hold **ret_hold, enum guard_risk *ret_risk, struct err *err)
{
    const struct sandbox *sb = map_get(&core->by_id, str_of(id));
    const struct guard_question q = {.id = id,
                                     .kind = kind,
                                     .actor = str_of(actor->name),
                                     .data = data,
                                     .tenant = sb ? sb->info.tenant : actor->who.tenant,
                                     .exec = actor->exec};
    struct guard_answer answer = {.rule = "default"};
    const char *why = NULL;
    *ret_hold = NULL;
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (key_still_good(core, &actor->who, err) < 0)
        return -1;
    enum guard_verdict verdict = core->guard->decide(core->guard->ctx, &q, &answer.rule);
    if (verdict == GUARD_ALLOW && !actor->is_own)
        verdict = guard_judge(core, &q, &answer);
    *ret_risk = answer.risk;
    if (verdict == GUARD_ALLOW && !hold_was_answered(actor->holder, &q))
        return 0;
    if (verdict != GUARD_DENY) {
        int r = hold_ask(core, actor->holder, &q, &answer, ret_hold, &why, err);
        if (r == 0 || !why)
            return r;
    } else {
        (void)err_set(err, ERR_PERMISSION_DENIED, "%s is denied by rule '%s'%s%s", event_kind_name(kind), answer.rule,
                      answer.reason ? ": " : "", answer.reason ? answer.reason : "");
    }
    action_note_denial(core, &q, actor->name, &answer, why);
    return -1;
}

/*
 * With the client's trace and explanation, where there is room. The guard, and who looks for repetitions, see what is
 * asked for alone.
 */
static struct str action_annotated(const struct actor *actor, struct str data, struct buf *b)
{
    const struct {
        const char *name;
        struct str value;
    } all[] = {{"explanation", actor->explanation}, {"traceparent", actor->trace}};
    if (data.n < 2 || !(actor->explanation.n || actor->trace.n))
        return data;
    buf_append(b, data.p, data.n - 1);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (all[i].value.n) {
            buf_printf(b, "%s\"%s\":", buf_len(b) > 1 ? "," : "", all[i].name);
            buf_append_json_string(b, all[i].value);
        }
    buf_append_char(b, '}');
    return buf_error(b) ? data : buf_str(b);
}

static int action_pass(struct core *core, const char *id, const struct actor *actor, enum event_kind kind,
                       struct str data, const struct event_limit *limit, uint64_t *ret_seq, struct err *err)
{
    struct event_draft draft = action_draft(core, id, actor, kind, data);
    struct hold *hold;
    enum guard_risk risk = RISK_LOW;
    if (action_gate(core, id, actor, kind, data, &hold, &risk, err) < 0)
        return -1;
    if (hold)
        draft.cause = hold_use(hold);
    AUTO_BUF struct buf annotated = BUF_INIT(EVENT_DATA_MAX);
    struct event_draft recorded = draft;
    recorded.data = action_annotated(actor, data, &annotated);
    if (action_append_action(core, &recorded, limit, ret_seq, err) < 0)
        return -1;
    if (*ret_seq && !actor->is_own)
        stuck_action(core, &draft, *ret_seq);
    struct sandbox *sb = *ret_seq ? map_get(&core->by_id, str_of(id)) : NULL;
    if (sb && !actor->sets_up)
        checkpoint_action(sb, kind, risk, *ret_seq);
    return 0;
}

int action_allow(struct core *core, const struct actor *actor, enum event_kind kind, struct str data, struct err *err)
{
    /* is not used up: what makes a thing may be several actions, of which the next one is asked about */
    struct hold *hold;
    enum guard_risk risk = RISK_LOW;
    return action_gate(core, SERVICE_LOG_ID, actor, kind, data, &hold, &risk, err);
}

int action_record(struct core *core, const char *id, const struct actor *actor, enum event_kind kind, struct str data,
                  uint64_t *ret_seq, struct err *err)
{
    const struct event_draft draft = action_draft(core, id, actor, kind, data);
    return action_append_action(core, &draft, NULL, ret_seq, err);
}

int action_on(struct core *core, const char *id, const struct actor *actor, enum event_kind kind, struct str data,
              uint64_t *ret_seq, struct err *err)
{
    return action_pass(core, id, actor, kind, data, NULL, ret_seq, err);
}

int action_permit(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                  uint64_t *ret_seq, struct err *err)
{
    return action_on(sb->core, sb->info.id, actor, kind, data, ret_seq, err);
}

int action_begin_limited(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                         const struct event_limit *limit, uint64_t *ret_seq, struct err *err)
{
    bool sets_up = actor->sets_up && start_is_under_way(sb) && !sb->core->closing;
    if (!sets_up && sandbox_usable(sb, err) < 0)
        return -1;
    return action_pass(sb->core, sb->info.id, actor, kind, data, limit, ret_seq, err);
}

int action_begin(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                 uint64_t *ret_seq, struct err *err)
{
    return action_begin_limited(sb, actor, kind, data, NULL, ret_seq, err);
}

/* ---- what came of it ---- */

void action_observe(struct sandbox *sb, uint64_t cause, enum event_kind kind, enum event_grade grade, struct str data)
{
    enum event_source source = grade == EVENT_CLAIMED           ? EVENT_AGENT
                               : grade == EVENT_OBSERVED_KERNEL ? EVENT_KERNEL
                                                                : EVENT_HOST;
    const struct event_draft draft = {
        .sandbox = sb->info.id, .kind = kind, .source = source, .grade = grade, .cause = cause, .data = data};
    struct err err;
    uint64_t seq = 0;
    (void)!action_append(sb->core, &draft, NULL, &seq, &err);
    if (sb->stuck)
        stuck_result(sb, &draft);
    if (seq)
        checkpoint_result(sb, kind, seq);
}

static uint64_t action_note_with(struct core *core, const char *id, const char *actor, uint64_t cause,
                                 enum event_kind kind, struct str data, const struct event_limit *limit)
{
    const struct event_draft draft = {.sandbox = id,
                                      .kind = kind,
                                      .source = EVENT_HOST,
                                      .grade = EVENT_OBSERVED_HOST,
                                      .actor = actor ? str_of(actor) : STR_NULL,
                                      .cause = cause,
                                      .data = data};
    struct err err;
    uint64_t seq = 0;
    return action_append(core, &draft, limit, &seq, &err) < 0 ? 0 : seq;
}

uint64_t action_note(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                     struct str data)
{
    return action_note_with(core, id, actor, cause, kind, data, NULL);
}

void action_note_limited(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                         struct str data)
{
    static const struct event_limit limit = {NOTES_MAX, NOTES_MS * USEC_PER_MS};
    (void)action_note_with(core, id, actor, cause, kind, data, &limit);
}

void action_describe_error(struct event_data *d, const struct err *err)
{
    EVENT_DATA_PUT(d, DATA_STR("code", err_code_name(err->code)), DATA_STR("message", err->msg));
}

uint64_t action_note_question(struct core *core, const struct guard_question *q, const char *actor, uint64_t cause,
                              enum event_kind kind, struct str data)
{
    return action_note(core, action_log(core, q->id, q->tenant), actor, cause, kind, data);
}

void action_fruitless(struct core *core, uint64_t tenant, uint64_t cause, enum event_kind action, const struct err *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("what", event_kind_name(action)));
    action_describe_error(&d, why);
    action_note_limited(core, tenant_log(core, tenant), NULL, cause, EVENT_SERVICE_REFUSED, event_data_end(&d));
}

int action_service(struct core *core, const struct actor *actor, enum event_kind kind, struct event_data *d,
                   uint64_t *ret_seq, struct err *err)
{
    return action_on(core, SERVICE_LOG_ID, actor, kind, event_data_end(d), ret_seq, err);
}

int action_stored(struct core *core, const struct actor *actor, uint64_t cause, enum event_kind kind, int r,
                  struct err *err)
{
    return action_end(core, actor, cause, kind, r < 0 ? r : keeper_commit(core->keeper, err), err);
}

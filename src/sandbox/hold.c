/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/hold.h"
#include "base/id.h"
#include "base/mem.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/object.h"
#include "sandbox/quota.h"

enum hold_state { HOLD_WAITS, HOLD_ALLOWED, HOLD_DENIED };

struct hold {
    struct list node; /* of its holder */
    struct list all;  /* of the core, while it waits */
    struct core *core;
    struct holder *holder;
    struct hold_info info; /* its strings are ours */
    enum hold_state state;
    uint64_t seq; /* of guard.asked, then of guard.answered */
    size_t bytes;
    bool is_late; /* nobody answered in time */
    struct loop_alarm alarm;
    struct loop_job job;
};

static void holder_goes_on(struct loop_job *job)
{
    struct holder *h = container_of(job, struct holder, goes_on);
    h->again(h);
}

void holder_init(struct holder *h, void (*again)(struct holder *h))
{
    *h = (struct holder){.again = again};
    list_init(&h->holds);
    loop_job_init(&h->goes_on, holder_goes_on);
}

bool holder_waits(struct holder *h)
{
    LIST_FOREACH (struct hold, hold, &h->holds, node)
        if (hold->state == HOLD_WAITS)
            return true;
    return !list_empty(&h->goes_on.node);
}

static void hold_free(struct hold *h)
{
    list_remove(&h->node);
    loop_job_cancel(&h->job);
    MEM_FREE(h->info.id, h->info.question.id, h->info.question.actor.p, h->info.question.data.p, h->info.answer.rule,
             h->info.answer.reason, h);
}

static void hold_end(struct hold *h, enum hold_state state, const char *how, const char *by)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("hold", h->info.id), DATA_STR("answer", how));
    h->seq = action_note_question(h->core, &h->info.question, by, h->seq, EVENT_GUARD_ANSWERED, event_data_end(&d));
    h->state = state;
    list_remove(&h->all);
    h->core->n_holds--;
    h->core->hold_bytes -= h->bytes;
    loop_alarm_clear(h->core->loop, &h->alarm);
    loop_later(h->core->loop, &h->job);
}

void holder_fini(struct holder *h)
{
    loop_job_cancel(&h->goes_on);
    LIST_FOREACH (struct hold, hold, &h->holds, node) {
        if (hold->state == HOLD_WAITS)
            hold_end(hold, HOLD_DENIED, "gone", NULL);
        hold_free(hold);
    }
}

static void hold_on_answered(struct loop_job *job)
{
    struct holder *holder = container_of(job, struct hold, job)->holder;
    holder->again(holder);
}

static void hold_on_alarm(struct loop_alarm *alarm)
{
    struct hold *h = container_of(alarm, struct hold, alarm);
    h->is_late = true;
    hold_end(h, HOLD_DENIED, "timeout", NULL);
}

/* One that was answered, and that this action was asked about. */
static struct hold *hold_find(struct holder *holder, const struct guard_question *q)
{
    LIST_FOREACH (struct hold, h, &holder->holds, node) {
        const struct guard_question *was = &h->info.question;
        if (h->state != HOLD_WAITS && was->kind == q->kind && strcmp(was->id, q->id) == 0 && str_eq(was->data, q->data))
            return h;
    }
    return NULL;
}

bool hold_was_answered(struct holder *holder, const struct guard_question *q)
{
    return holder && hold_find(holder, q);
}

static struct str hold_copy(struct str s)
{
    return str_n(mem_strndup(s.p ? s.p : "", s.n), s.n);
}

static struct hold *hold_new(struct core *core, struct holder *holder, const struct guard_question *q,
                             const struct guard_answer *answer)
{
    struct hold *h = mem_new(struct hold);
    char id[HOLD_ID_LEN + 1] = "h";
    id_token(id + 1, HOLD_ID_LEN - 1);
    uint64_t ms = core->config.hold_ms ? core->config.hold_ms : HOLD_MS;
    usec_t now = clock_real();
    *h = (struct hold){.core = core, .holder = holder, .bytes = holder->bytes + q->data.n};
    h->info = (struct hold_info){.id = mem_strdup(id),
                                 .question = {mem_strdup(q->id), q->kind, hold_copy(q->actor), hold_copy(q->data),
                                              q->tenant, NULL, q->wants_risk},
                                 .answer = *answer,
                                 .is_analysed = answer->is_analysed,
                                 .asked = now,
                                 .until = clock_add_ms(now, ms)};
    h->info.answer.rule = mem_strdup(answer->rule);
    h->info.answer.reason = mem_strdup(answer->reason);
    list_append(&holder->holds, &h->node);
    list_append(&core->holds, &h->all);
    core->n_holds++;
    core->hold_bytes += h->bytes;
    loop_job_init(&h->job, hold_on_answered);
    loop_alarm_set(core->loop, &h->alarm, clock_add_ms(clock_mono(), ms), hold_on_alarm);
    return h;
}

static bool hold_has_room(struct core *core, struct holder *holder, const struct guard_question *q)
{
    size_t of_one = 0, of_tenant = 0, bytes = 0;
    LIST_FOREACH (struct hold, h, &core->holds, all) {
        const bool is_theirs = h->info.question.tenant == q->tenant;
        of_one += strcmp(h->info.question.id, q->id) == 0;
        of_tenant += is_theirs;
        bytes += is_theirs ? h->bytes : 0;
    }
    return quota_is_share(HOLDS_MAX, core->n_holds, of_tenant, 1) &&
           quota_is_share(HOLDS_BYTES, core->hold_bytes, bytes, holder->bytes + q->data.n) &&
           (of_one < HOLDS_OF_ONE || strcmp(q->id, SERVICE_LOG_ID) == 0);
}

int hold_ask(struct core *core, struct holder *holder, const struct guard_question *q,
             const struct guard_answer *answer, struct hold **ret_hold, const char **ret_why, struct err *err)
{
    const char *rule = answer->rule, *kind = event_kind_name(q->kind);
    struct hold *h = holder ? hold_find(holder, q) : NULL;
    if (h && h->state == HOLD_ALLOWED) {
        *ret_hold = h;
        return 0;
    }
    if (h) {
        (void)err_set(err, ERR_PERMISSION_DENIED, "%s was not allowed%s", kind,
                      h->is_late ? ": nobody answered in time" : "");
        hold_free(h);
        return -1;
    }
    if (!holder) {
        *ret_why = "can't wait";
        return err_set(err, ERR_PERMISSION_DENIED, "rule '%s' requires approval of %s, and it can't wait for that here",
                       rule, kind);
    }
    if (!hold_has_room(core, holder, q)) {
        *ret_why = "too many wait";
        return err_set(err, ERR_PERMISSION_DENIED,
                       "rule '%s' requires approval of %s, and too many actions are "
                       "already waiting",
                       rule, kind);
    }
    h = hold_new(core, holder, q, answer);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("hold", h->info.id), DATA_STR("kind", kind));
    guard_describe(&d, answer);
    event_data_json(&d, "action", q->data);
    h->seq = action_note_question(core, q, h->info.question.actor.p, 0, EVENT_GUARD_ASKED, event_data_end(&d));
    if (answer->is_analysed)
        analyser_ask(core, &h->info, h->seq);
    (void)err_set(err, ERR_PERMISSION_DENIED, "%s is waiting for approval", kind);
    err->reason = ERR_HELD;
    return -1;
}

uint64_t hold_use(struct hold *h)
{
    uint64_t seq = h->seq;
    hold_free(h);
    return seq;
}

void hold_each(struct core *core, bool (*fn)(void *ctx, const struct hold_info *info), void *ctx)
{
    LIST_FOREACH (struct hold, h, &core->holds, all)
        if (!fn(ctx, &h->info))
            return;
}

static struct hold *hold_of(struct core *core, struct str id)
{
    LIST_FOREACH (struct hold, h, &core->holds, all)
        if (str_eqc(id, h->info.id))
            return h;
    return NULL;
}

const struct hold_info *hold_find_id(struct core *core, struct str id)
{
    const struct hold *h = hold_of(core, id);
    return h ? &h->info : NULL;
}

void hold_analysed(struct core *core, struct str id, enum guard_verdict verdict, enum guard_risk risk,
                   const char *reason)
{
    struct hold *h = hold_of(core, id);
    if (!h)
        return;
    h->info.is_analysed = false;
    h->info.answer.risk = risk;
    mem_free((char *)h->info.answer.reason);
    h->info.answer.reason = mem_strdup(reason);
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_STR("hold", h->info.id), DATA_STR("verdict", guard_verdict_name(verdict)),
                   DATA_STR("risk", guard_risk_name(risk)), DATA_STR("reason", reason));
    (void)action_note_question(core, &h->info.question, "analyser", h->seq, EVENT_GUARD_JUDGED, event_data_end(&d));
    if (verdict != GUARD_ASK)
        hold_end(h, verdict == GUARD_ALLOW ? HOLD_ALLOWED : HOLD_DENIED, verdict == GUARD_ALLOW ? "allowed" : "denied",
                 "analyser");
}

int hold_answer(struct core *core, struct str id, bool is_allowed, const char *by, struct err *err)
{
    struct hold *h = hold_of(core, id);
    if (h) {
        hold_end(h, is_allowed ? HOLD_ALLOWED : HOLD_DENIED, is_allowed ? "allowed" : "denied", by);
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "no waiting action has the id %.*s", STR_ARG_MAX(id, 64));
}

void holds_end(struct core *core, const char *id, const char *how)
{
    LIST_FOREACH (struct hold, h, &core->holds, all)
        if (!id || strcmp(h->info.question.id, id) == 0)
            hold_end(h, HOLD_DENIED, how, NULL);
}

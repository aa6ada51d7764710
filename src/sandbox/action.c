/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "sandbox/internal.h"

void core_unrecorded(struct core *core, const struct err *err)
{
    if (core->unrecorded++ == 0)
        log_error("an event or a row could not be stored: %s", err->msg);
}

int sandbox_usable(const struct sandbox *sb, struct err *err)
{
    if (sandbox_state_is_over(sb->info.state))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (sb->info.state != SANDBOX_RUNNING)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is %s", sb->info.id,
                       sandbox_state_name(sb->info.state));
    if (sb->core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service stops");
    return 0;
}

/* limit NULL: none. */
static int record(struct sandbox *sb, const struct event_draft *draft, const struct event_limit *limit,
                  uint64_t *ret_seq, struct err *err)
{
    int r = limit ? event_append_limited(sb->core->config.events, draft, limit, ret_seq, err)
                  : event_append(sb->core->config.events, draft, ret_seq, err);
    if (r < 0)
        core_unrecorded(sb->core, err);
    else
        keeper_wrote(sb->core->keeper);
    return MIN(r, 0);
}

/* An action that can't be recorded is not done. While the last batch was lost nobody can know before trying. */
static int record_action(struct sandbox *sb, const struct event_draft *draft, const struct event_limit *limit,
                         uint64_t *ret_seq, struct err *err)
{
    struct keeper *k = sb->core->keeper;
    *ret_seq = 0;
    int r = record(sb, draft, limit, ret_seq, err);
    if (r == 0)
        keeper_acts(k);
    if (r == 0 && keeper_fails(k))
        r = keeper_commit(k, err);
    /* But for the end: who fills the disk must not become immortal by it. */
    return r < 0 && draft->kind != EVENT_SANDBOX_KILL ? err_prefix(err, "record the action") : 0;
}

static int permit(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                  const struct event_limit *limit, uint64_t *ret_seq, struct err *err)
{
    const char *rule;
    uint64_t seq;
    struct event_draft draft = {.sandbox = sb->info.id,
                                .kind = kind,
                                .source = EVENT_CLIENT,
                                .grade = EVENT_OBSERVED_HOST,
                                .actor = str_of(actor->name),
                                .data = data};
    if (guard_decide(sb->core->guard, kind, draft.actor, &rule) == GUARD_DENY) {
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
        event_data_str(&d, "kind", str_of(event_kind_name(kind)));
        event_data_str(&d, "rule", str_of(rule));
        event_data_json(&d, "action", data);
        draft.kind = EVENT_GUARD_DENIED;
        draft.source = EVENT_HOST;
        draft.data = event_data_end(&d);
        (void)!record(sb, &draft, limit, &seq, err);
        return err_set(err, ERR_PERMISSION_DENIED, "%s is denied by rule '%s'", event_kind_name(kind), rule);
    }
    return record_action(sb, &draft, limit, ret_seq, err);
}

int action_permit(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                  uint64_t *ret_seq, struct err *err)
{
    return permit(sb, actor, kind, data, NULL, ret_seq, err);
}

int action_begin_limited(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                         const struct event_limit *limit, uint64_t *ret_seq, struct err *err)
{
    bool sets_up = actor->sets_up && start_is_under_way(sb) && !sb->core->closing;
    if (!sets_up && sandbox_usable(sb, err) < 0)
        return -1;
    return permit(sb, actor, kind, data, limit, ret_seq, err);
}

int action_begin(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                 uint64_t *ret_seq, struct err *err)
{
    return action_begin_limited(sb, actor, kind, data, NULL, ret_seq, err);
}

void action_observe(struct sandbox *sb, uint64_t cause, enum event_kind kind, enum event_grade grade, struct str data)
{
    enum event_source source = grade == EVENT_CLAIMED           ? EVENT_AGENT
                               : grade == EVENT_OBSERVED_KERNEL ? EVENT_KERNEL
                                                                : EVENT_HOST;
    struct event_draft draft = {
        .sandbox = sb->info.id, .kind = kind, .source = source, .grade = grade, .cause = cause, .data = data};
    struct err err;
    uint64_t seq;
    (void)!record(sb, &draft, NULL, &seq, &err);
}

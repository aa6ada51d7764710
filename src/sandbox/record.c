/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/record.h"
#include "sandbox/internal.h"

enum { PRUNE_EACH = 500, REFUSED_MAX = 20, REFUSED_MS = 10000 };

static void wrote(struct core *core, const char *id, uint64_t seq)
{
    struct err err;
    keeper_wrote(core->keeper);
    if (seq > RECORD_KEEP && seq % PRUNE_EACH == 0 && event_prune(core->config.events, id, seq - RECORD_KEEP, &err) < 0)
        core_unrecorded(core, &err);
}

int record_act(struct core *core, const char *id, const struct actor *actor, enum event_kind kind, struct str data,
               uint64_t *ret_seq, struct err *err)
{
    struct event_draft draft = {.sandbox = id,
                                .kind = kind,
                                .source = EVENT_CLIENT,
                                .grade = EVENT_OBSERVED_HOST,
                                .actor = str_of(actor->name),
                                .data = data};
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    const char *rule;
    uint64_t seq;
    bool is_denied = guard_decide(core->guard, kind, draft.actor, &rule) == GUARD_DENY;
    if (is_denied) {
        event_data_str(&d, "kind", str_of(event_kind_name(kind)));
        event_data_str(&d, "rule", str_of(rule));
        event_data_json(&d, "action", data);
        draft.kind = EVENT_GUARD_DENIED;
        draft.source = EVENT_HOST;
        draft.data = event_data_end(&d);
    }
    if (event_append(core->config.events, &draft, &seq, err) < 0)
        return err_prefix(err, "record the action");
    wrote(core, id, seq);
    keeper_acts(core->keeper);
    if (keeper_fails(core->keeper) && keeper_commit(core->keeper, err) < 0)
        return err_prefix(err, "record the action");
    if (is_denied)
        return err_set(err, ERR_PERMISSION_DENIED, "%s is denied by rule '%s'", event_kind_name(kind), rule);
    *ret_seq = seq;
    return 0;
}

static struct event_draft observed(const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                                   struct str data)
{
    return (struct event_draft){.sandbox = id,
                                .kind = kind,
                                .source = EVENT_HOST,
                                .grade = EVENT_OBSERVED_HOST,
                                .actor = actor ? str_of(actor) : STR_NULL,
                                .cause = cause,
                                .data = data};
}

void record_observe(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                    struct str data)
{
    struct event_draft draft = observed(id, actor, cause, kind, data);
    struct err err;
    uint64_t seq;
    if (event_append(core->config.events, &draft, &seq, &err) < 0)
        core_unrecorded(core, &err);
    else
        wrote(core, id, seq);
}

void record_refusal(struct core *core, const char *id, const char *actor, uint64_t cause, enum event_kind kind,
                    struct str data)
{
    static const struct event_limit limit = {REFUSED_MAX, REFUSED_MS * USEC_PER_MS};
    struct event_draft draft = observed(id, actor, cause, kind, data);
    struct err err;
    uint64_t seq;
    if (event_append_limited(core->config.events, &draft, &limit, &seq, &err) < 0)
        core_unrecorded(core, &err);
    else
        wrote(core, id, seq);
}

void record_error(struct event_data *d, const struct err *err)
{
    event_data_str(d, "code", str_of(err_code_name(err->code)));
    event_data_str(d, "message", str_of(err->msg));
}

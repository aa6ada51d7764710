/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a volume is on record under the volume's own id: it outlives every sandbox that has it. Mounts are in the sandbox's log as well. Of a volume that is
 * there the last KEEP events are kept, at least; the log of one that was dropped stays as long as that of a sandbox that ended (retention.c).
 */
#include "base/log.h"
#include "sandbox/volume_internal.h"

enum { KEEP = 10000, PRUNE_EACH = 500, REFUSED_MAX = 20, REFUSED_MS = 10000 };

static void wrote(struct core *core, const char *id, uint64_t seq)
{
    struct err err;
    keeper_wrote(core->keeper);
    if (seq > KEEP && seq % PRUNE_EACH == 0 && event_prune(core->config.events, id, seq - KEEP, &err) < 0)
        core_unrecorded(core, &err);
}

static struct event_draft draft_of(const struct vol *v, enum event_kind kind, struct str data)
{
    return (struct event_draft){
        .sandbox = v->v.id, .kind = kind, .source = EVENT_HOST, .grade = EVENT_OBSERVED_HOST, .data = data};
}

void volume_observe(struct vol *v, enum event_kind kind, struct str data)
{
    struct event_draft draft = draft_of(v, kind, data);
    uint64_t seq = 0;
    struct err err;
    draft.cause = v->action_seq;
    if (event_append(v->core->config.events, &draft, &seq, &err) < 0)
        core_unrecorded(v->core, &err);
    else
        wrote(v->core, v->v.id, seq);
}

int volume_act(struct vol *v, const struct actor *actor, enum event_kind kind, struct str data, struct err *err)
{
    struct core *core = v->core;
    struct event_draft draft = draft_of(v, kind, data);
    const char *rule;
    draft.actor = str_of(actor->name);
    bool is_denied = guard_decide(core->guard, kind, draft.actor, &rule) == GUARD_DENY;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    if (is_denied) {
        event_data_str(&d, "kind", str_of(event_kind_name(kind)));
        event_data_str(&d, "rule", str_of(rule));
        event_data_json(&d, "action", data);
        draft.kind = EVENT_GUARD_DENIED;
        draft.data = event_data_end(&d);
    } else {
        draft.source = EVENT_CLIENT;
    }
    if (event_append(core->config.events, &draft, &v->action_seq, err) < 0)
        return err_prefix(err, "record the action");
    keeper_acts(core->keeper);
    if (is_denied)
        return err_set(err, ERR_PERMISSION_DENIED, "%s is denied by rule '%s'", event_kind_name(kind), rule);
    return 0;
}

static void say_error(struct event_data *d, const struct err *err)
{
    event_data_str(d, "code", str_of(err_code_name(err->code)));
    event_data_str(d, "message", str_of(err->msg));
}

void volume_failed(struct vol *v, const char *what, const struct err *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_str(&d, "what", str_of(what));
    say_error(&d, why);
    volume_observe(v, EVENT_VOLUME_FAILED, event_data_end(&d));
}

static void refused(struct vol *v, const char *actor, struct str data)
{
    static const struct event_limit limit = {REFUSED_MAX, REFUSED_MS * USEC_PER_MS};
    struct event_draft draft = draft_of(v, EVENT_VOLUME_REFUSED, data);
    uint64_t seq;
    struct err err;
    draft.actor = actor ? str_of(actor) : STR_NULL;
    if (event_append_limited(v->core->config.events, &draft, &limit, &seq, &err) < 0)
        core_unrecorded(v->core, &err);
    else
        wrote(v->core, v->v.id, seq);
}

void volume_refused(struct vol *v, const struct actor *actor, const char *what, const struct err *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_str(&d, "what", str_of(what));
    say_error(&d, why);
    refused(v, actor->name, event_data_end(&d));
}

/* ---- mounts: those of hidden sandboxes are our own doing ---- */

static void describe(const struct volume_mount *m, struct event_data *d)
{
    event_data_str(d, "path", m->path);
    event_data_bool(d, "read_only", m->read_only);
}

static void in_volume(struct sandbox *sb, const struct volume_mount *m, enum event_kind kind)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    struct vol *v = vol_find(sb->core, m->name);
    if (!v)
        return;
    event_data_str(&d, "sandbox", str_of(sb->info.id));
    describe(m, &d);
    v->action_seq = 0;
    volume_observe(v, kind, event_data_end(&d));
}

static void in_sandbox(struct sandbox *sb, const struct volume_mount *m, enum event_kind kind, const struct err *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    const struct vol *v = vol_find(sb->core, m->name);
    event_data_str(&d, "volume", v ? str_of(v->v.id) : m->name);
    if (v)
        event_data_str(&d, "name", str_of(v->v.name));
    describe(m, &d);
    if (why)
        say_error(&d, why);
    action_observe(sb, sb->pause_seq ? sb->pause_seq : sb->create_seq, kind, EVENT_OBSERVED_HOST, event_data_end(&d));
}

void volume_log_mounted(struct sandbox *sb)
{
    const struct volume_mount *m = &sb->info.mounts[sb->n_mounted++];
    if (sb->info.hidden)
        return;
    in_volume(sb, m, EVENT_VOLUME_MOUNTED);
    in_sandbox(sb, m, EVENT_VOLUME_MOUNTED, NULL);
}

void volume_log_unmounted(struct sandbox *sb)
{
    while (sb->n_mounted) {
        const struct volume_mount *m = &sb->info.mounts[--sb->n_mounted];
        if (sb->info.hidden)
            continue;
        in_volume(sb, m, EVENT_VOLUME_UNMOUNTED);
        if (!sandbox_state_is_over(sb->info.state))
            in_sandbox(sb, m, EVENT_VOLUME_UNMOUNTED, NULL); /* else the end says it */
    }
}

void volume_log_refused(struct sandbox *sb, const struct volume_mount *m, const struct err *why)
{
    struct vol *v = vol_find(sb->core, m->name);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    if (sb->info.hidden)
        return;
    in_sandbox(sb, m, EVENT_VOLUME_REFUSED, why);
    if (!v)
        return;
    event_data_str(&d, "what", STR("mount"));
    event_data_str(&d, "sandbox", str_of(sb->info.id));
    describe(m, &d);
    say_error(&d, why);
    refused(v, NULL, event_data_end(&d));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a volume is on record under the volume's own id: it outlives every sandbox that has it. Mounts are in
 * the sandbox's log as well. Of a volume that is there the last LOG_KEEP events are kept, at least; the log of one that
 * was dropped stays as long as that of a sandbox that ended (retention.c).
 */
#include "base/log.h"
#include "sandbox/action.h"
#include "sandbox/volume/mounts.h"
#include "sandbox/volume/volume_internal.h"

void volume_observe(struct vol *v, enum event_kind kind, struct str data)
{
    (void)action_note(v->core, v->v.id, NULL, v->action_seq, kind, data);
}

void volume_failed(struct vol *v, const char *what, const struct err *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("what", what));
    action_describe_error(&d, why);
    volume_observe(v, EVENT_VOLUME_FAILED, event_data_end(&d));
}

void volume_refused(struct vol *v, const struct actor *actor, const char *what, const struct err *why)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("what", what));
    action_describe_error(&d, why);
    action_note_limited(v->core, v->v.id, actor->name, 0, EVENT_VOLUME_REFUSED, event_data_end(&d));
}

/* A drop of which it is known that nothing came. */
static bool is_refused_drop(const struct event *e)
{
    static const struct str drop = {"{\"what\":\"drop\",", 15};
    return e->kind == EVENT_VOLUME_FAILED && str_starts(e->data, drop) &&
           !str_starts(str_sub(e->data, drop.n), STR("\"code\":\"unavailable\"")) &&
           !str_starts(str_sub(e->data, drop.n), STR("\"code\":\"deadline_exceeded\""));
}

/* Which of the two it is decides the last event that says. */
static bool volume_log_fold(const struct event *e, void *ctx)
{
    bool *is_made = ctx;
    if (e->kind == EVENT_VOLUME_CREATE || e->kind == EVENT_VOLUME_DROP || e->kind == EVENT_VOLUME_DROPPED)
        *is_made = false;
    else if (e->kind == EVENT_VOLUME_CREATED || e->kind == EVENT_VOLUME_MOUNTED || is_refused_drop(e))
        *is_made = true;
    return true;
}

bool volume_log_says_made(const struct vol *v)
{
    bool is_made = true; /* also when that was so long ago that it is no longer in the log */
    struct err err;
    if (event_read(v->core->config.events, v->v.id, 0, SIZE_MAX, volume_log_fold, &is_made, &err) < 0)
        log_warn("the log of volume %s can't be read: %s", v->v.name, err.msg);
    return is_made;
}

/* ---- mounts: those of hidden sandboxes are our own doing ---- */

static void volume_log_describe(const struct volume_mount *m, struct event_data *d)
{
    EVENT_DATA_PUT(d, DATA_STR("path", m->path), DATA_BOOL("read_only", m->read_only));
}

static void in_volume(struct sandbox *sb, const struct volume_mount *m, enum event_kind kind)
{
    struct vol *v = vol_find(sb->core, sb->info.tenant, m->name);
    if (!v)
        return;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("sandbox", sb->info.id));
    volume_log_describe(m, &d);
    v->action_seq = 0;
    volume_observe(v, kind, event_data_end(&d));
}

static void in_sandbox(struct sandbox *sb, const struct volume_mount *m, enum event_kind kind, const struct err *why)
{
    const struct vol *v = vol_find(sb->core, sb->info.tenant, m->name);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("volume", v ? str_of(v->v.id) : m->name));
    if (v)
        event_data_str(&d, "name", str_of(v->v.name));
    volume_log_describe(m, &d);
    if (why)
        action_describe_error(&d, why);
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
    struct vol *v = vol_find(sb->core, sb->info.tenant, m->name);
    if (sb->info.hidden)
        return;
    in_sandbox(sb, m, EVENT_VOLUME_REFUSED, why);
    if (!v)
        return;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("what", "mount"), DATA_STR("sandbox", sb->info.id));
    volume_log_describe(m, &d);
    action_describe_error(&d, why);
    action_note_limited(v->core, v->v.id, NULL, 0, EVENT_VOLUME_REFUSED, event_data_end(&d));
}

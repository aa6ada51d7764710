/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing, resuming, snapshots, forks and checkpoints. */
#include "api/kit/forks.h"
#include "api/native/handlers.h"
#include "base/mem.h"
#include "guard/rules.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/templates.h"
#include "template/builds.h"

void native_state_pause(struct call *c)
{
    bool memory = true;
    struct str to = STR_NULL;
    if (!CALL_WANTS(c, JSON_WANT_BOOL("memory", &memory), JSON_WANT_STR("to", &to)))
        return;
    bool to_disk = str_eqc(to, "disk");
    if (to.p && ((!to_disk && !str_eqc(to, "memory")) || !memory))
        call_refuse(c, ERR_INVALID_ARGUMENT, "\"to\" must be \"memory\" or \"disk\", and needs \"memory\":true");
    else
        call_held(c, to_disk ? sandbox_pause_to_disk(c->sandbox, &c->actor, native_on_sandbox, call_hold(c), &c->err)
                             : sandbox_pause(c->sandbox, &c->actor, memory, native_on_sandbox, call_hold(c), &c->err));
}

void native_state_resume(struct call *c)
{
    struct sandbox_resume how = {0};
    int64_t timeout_ms = -1;
    if (!CALL_WANTS(c, JSON_WANT_BOOL("cold", &how.cold), JSON_WANT_INT("timeout_ms", 0, INT64_MAX, &timeout_ms)))
        return;
    how.has_timeout = timeout_ms >= 0;
    how.timeout_ms = how.has_timeout ? (uint64_t)timeout_ms : 0;
    call_held(c, sandbox_resume(c->sandbox, &c->actor, &how, native_on_sandbox, call_hold(c), &c->err));
}

/* ---- snapshots ---- */

static json_t *state_snapshot_json(const struct template *t)
{
    return json_pack("{s:s,s:s?,s:s?,s:s?,s:b,s:o?,s:i,s:I,s:I}", "ref", template_called(t), "name", t->name, "sandbox",
                     t->source, "layer", t->layer, "memory", t->has_memory, "at", call_time(t->built), "cpu_milli",
                     (int)t->cpu_milli, "memory_bytes", (json_int_t)t->memory_bytes, "disk_bytes",
                     (json_int_t)t->disk_bytes);
}

static void snapshot_made(void *ctx, const struct template *t, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 201, state_snapshot_json(t));
}

void native_state_snapshot(struct call *c)
{
    struct str name = STR("");
    bool memory = false;
    if (!CALL_WANTS(c, JSON_WANT_STR("name", &name), JSON_WANT_BOOL("memory", &memory)))
        return;
    call_held(c, sandbox_snapshot(c->sandbox, &c->actor, name, memory, snapshot_made, call_hold(c), &c->err));
}

static bool state_is_of(const void *source, const struct template *t)
{
    const struct str *wanted = source;
    return !wanted->p || (t->source && str_eqc(*wanted, t->source));
}

void native_state_snapshots(struct call *c)
{
    json_t *all = json_array();
    const struct template **found;
    struct str source = STR_NULL;
    (void)call_query(c, "sandbox", &source);
    size_t n = core_snapshots(call_core(c), c->actor.who.view, state_is_of, &source, &found);
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, state_snapshot_json(found[i]));
    mem_free(found);
    call_value(c, 200, json_pack("{s:o}", "snapshots", all));
}

/* "name:tag" of a name that has other tags is that one alone. */
static int remove_tag(struct call *c, const struct template_info *info, struct str tag, struct err *err)
{
    struct core *core = call_core(c);
    if (str_eqc(tag, "default"))
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "%s has other tags and needs this one: remove those first, or everything by its name alone",
                       info->name);
    AUTO_FREE char *name = mem_strdup(info->name);
    if (core_template_untag(core, &c->actor, str_of(name), &tag, 1, err) < 0)
        return -1;
    return core_templates_commit(core, err);
}

static int remove_snapshot(struct call *c, struct str ref, struct err *err)
{
    struct core *core = call_core(c);
    struct template_info info;
    ssize_t colon = str_find_char(ref, ':');
    if (template_info_find(core_templates(core), c->actor.who.view, ref, &info, err) < 0)
        return -1;
    if (!info.is_snapshot)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.*s is a template, not a snapshot", STR_ARG_MAX(ref, 128));
    if (colon >= 0 && info.name && info.n_tags > 1)
        return remove_tag(c, &info, str_sub(ref, (size_t)colon + 1), err);
    return core_template_remove(core, &c->actor, ref, err);
}

void native_state_snapshot_remove(struct call *c)
{
    struct str ref;
    if (!call_query(c, "ref", &ref) || !ref.n)
        call_refuse(c, ERR_INVALID_ARGUMENT, "ref is missing: the snapshot's id or name");
    else if (call_ok(c, remove_snapshot(c, ref, &c->err)))
        call_empty(c, 204);
}

/* ---- forks ---- */

static json_t *state_fork_json(struct call *c UNUSED, const struct sandbox *fork, const struct err *err)
{
    return err ? native_error(err, NULL) : json_pack("{s:o}", "sandbox", native_sandbox_json(fork));
}

static void state_forked(struct call *c, json_t *all)
{
    call_value(c, 201, json_pack("{s:o}", "forks", all));
}

/* What is asked for by seq waits for the checkpoint that is being made: it may be that one. */
static void native_state_settled(void *ctx, struct sandbox *sb UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_start(c);
}

static bool native_state_waits(struct call *c)
{
    return checkpoint_await(c->sandbox, native_state_settled, c) && call_hold(c);
}

void native_state_fork(struct call *c)
{
    int64_t count = 1, timeout_ms = -1, at = 0;
    bool memory = false;
    if (!CALL_WANTS(c, JSON_WANT_INT("count", 1, FORKS_MAX, &count), JSON_WANT_INT("at", 1, INT64_MAX, &at),
                    JSON_WANT_INT("timeout_ms", 0, INT64_MAX, &timeout_ms), JSON_WANT_BOOL("memory", &memory)))
        return;
    if (at && memory) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "checkpoints have no memory: give \"at\" or \"memory\"");
        return;
    }
    if (at && native_state_waits(c))
        return;
    uint64_t ends_after_ms = timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms;
    const size_t n = (size_t)count;
    struct forks *f = forks_new(c, n, state_fork_json, state_forked);
    forks_begun(f, at ? sandbox_fork_at(c->sandbox, &c->actor, (uint64_t)at, n, ends_after_ms, forks_on, f, &c->err)
                      : sandbox_fork(c->sandbox, &c->actor, memory, n, ends_after_ms, forks_on, f, &c->err));
}

/* ---- checkpoints ---- */

void native_state_checkpoints(struct call *c)
{
    char mode[CHECKPOINT_TEXT_MAX];
    json_t *shown;
    size_t n;
    if (native_state_waits(c))
        return;
    const struct checkpoint *all = checkpoint_list(c->sandbox, &n);
    shown = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(shown,
                                    json_pack("{s:I,s:o?}", "seq", (json_int_t)all[i].seq, "at", call_time(all[i].at)));
    call_value(c, 200,
               json_pack("{s:s,s:o}", "checkpoint", checkpoint_mode_format(checkpoint_mode(c->sandbox), mode).p,
                         "checkpoints", shown));
}

static void native_state_rewound(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(
            c, 200,
            json_pack("{s:I,s:o}", "checkpoint", *(const json_int_t *)c->state, "sandbox", native_sandbox_json(sb)));
}

void native_state_rewind(struct call *c)
{
    int64_t seq = 0;
    if (!CALL_WANTS(c, JSON_WANT_INT("seq", 1, INT64_MAX, &seq)) || native_state_waits(c))
        return;
    const struct checkpoint *one = checkpoint_find(c->sandbox, (uint64_t)seq);
    json_int_t *of = call_state(c, sizeof(*of), NULL);
    *of = one ? (json_int_t)one->seq : 0;
    if (!seq)
        call_refuse(c, ERR_INVALID_ARGUMENT, "\"seq\" is missing: the event whose files to restore");
    else
        call_held(c, sandbox_rewind(c->sandbox, &c->actor, (uint64_t)seq, native_state_rewound, call_hold(c), &c->err));
}

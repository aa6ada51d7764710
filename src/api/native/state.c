/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing, resuming, snapshots, forks and checkpoints. */
#include "api/native/handlers.h"
#include "base/mem.h"
#include "guard/rules.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/templates.h"
#include "template/builds.h"

#include <stdlib.h>

enum { STATE_LIST_BYTES = 4 << 20, FORKS_BYTES = 8 << 20 };

void native_state_pause(struct call *c)
{
    bool memory = true;
    struct str to = STR_NULL;
    if (!CALL_WANTS(c, JSON_WANT_BOOL("memory", &memory), JSON_WANT_STR("to", &to)))
        return;
    bool to_disk = str_eqc(to, "disk");
    if (to.p && ((!to_disk && !str_eqc(to, "memory")) || !memory)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "\"to\" must be \"memory\" or \"disk\", and needs \"memory\":true");
        return;
    }
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

static void append_snapshot(struct buf *b, const struct template *t)
{
    json_open(b, "ref", str_of(t->ref ? t->ref : t->id));
    json_put_text(b, "name", t->name);
    json_put_text(b, "sandbox", t->source);
    json_put_text(b, "layer", t->layer);
    buf_printf(b, ",\"memory\":%s", t->has_memory ? "true" : "false");
    json_put_time(b, "at", t->built, 3);
    buf_printf(b, ",\"cpu_milli\":%u,\"memory_bytes\":%llu,\"disk_bytes\":%llu}", t->cpu_milli,
               (unsigned long long)t->memory_bytes, (unsigned long long)t->disk_bytes);
}

static void snapshot_made(void *ctx, const struct template *t, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(STATE_LIST_BYTES);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    append_snapshot(&b, t);
    call_json_buf(c, 201, &b);
}

void native_state_snapshot(struct call *c)
{
    struct str name = STR("");
    bool memory = false;
    if (!CALL_WANTS(c, JSON_WANT_STR("name", &name), JSON_WANT_BOOL("memory", &memory)))
        return;
    __typeof__(sandbox_snapshot) *snapshot = memory ? sandbox_snapshot_memory : sandbox_snapshot;
    call_held(c, snapshot(c->sandbox, &c->actor, name, snapshot_made, call_hold(c), &c->err));
}

struct native_state_listing {
    struct str source; /* p NULL: any */
    const struct template **found;
    size_t n, cap;
};

static bool native_state_collect(void *ctx, const struct template *t)
{
    struct native_state_listing *l = ctx;
    if (!t->is_snapshot || (l->source.p && !(t->source && str_eqc(l->source, t->source))))
        return true;
    if (l->n == l->cap) {
        l->cap = MAX(2 * l->cap, (size_t)64);
        l->found = mem_realloc(l->found, l->cap * sizeof(struct template *));
    }
    l->found[l->n++] = t;
    return true;
}

/* Newest first. One with several tags stands beside itself. */
static int native_state_compare(const void *a, const void *b)
{
    const struct template *x = *(const struct template *const *)a, *y = *(const struct template *const *)b;
    return x->built != y->built ? (x->built > y->built ? -1 : 1) : (x > y) - (x < y);
}

void native_state_snapshots(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(STATE_LIST_BYTES);
    struct native_state_listing l = {.source = STR_NULL};
    (void)call_query(c, "sandbox", &l.source);
    core_templates_each(call_core(c), c->actor.who.view, native_state_collect, &l);
    if (l.n)
        qsort(l.found, l.n, sizeof(struct template *), native_state_compare);
    buf_append_cstr(&b, "{\"snapshots\":[");
    for (size_t i = 0; i < l.n; i++) {
        if (!i || l.found[i] != l.found[i - 1])
            append_snapshot(&b, l.found[i]);
    }
    buf_append_cstr(&b, "]}");
    mem_free(l.found);
    call_json_buf(c, 200, &b);
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

struct native_state_forks {
    struct call *call; /* held */
    size_t count;
    char *results[]; /* JSON, owned */
};

static void answer_forks(struct native_state_forks *f)
{
    AUTO_BUF struct buf b = BUF_INIT(FORKS_BYTES);
    struct call *c = call_back(f->call, NULL);
    buf_append_cstr(&b, "{\"forks\":[");
    for (size_t i = 0; i < f->count; i++) {
        json_put_comma(&b);
        buf_append_cstr(&b, f->results[i] ? f->results[i] : "null");
        mem_free(f->results[i]);
    }
    buf_append_cstr(&b, "]}");
    if (c)
        call_json_buf(c, 201, &b);
    mem_free(f);
}

static void forked(void *ctx, size_t i, struct sandbox *fork, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(FORKS_BYTES);
    struct native_state_forks *f = ctx;
    if (i >= f->count) {
        answer_forks(f);
        return;
    }
    if (err) {
        native_error_json(&b, err);
    } else {
        buf_append_cstr(&b, "{\"sandbox\":");
        native_append_sandbox(&b, fork);
        buf_append_char(&b, '}');
    }
    f->results[i] = mem_strndup(buf_data(&b), buf_len(&b));
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
    struct err err;
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
    struct native_state_forks *f = mem_alloc(sizeof(*f) + (size_t)count * sizeof(f->results[0]));
    memset(f, 0, sizeof(*f) + (size_t)count * sizeof(f->results[0]));
    f->count = (size_t)count;
    f->call = call_hold(c);
    __typeof__(sandbox_fork) *fork_now = memory ? sandbox_fork_memory : sandbox_fork;
    int r = at ? sandbox_fork_at(c->sandbox, &c->actor, (uint64_t)at, f->count, ends_after_ms, forked, f, &err)
               : fork_now(c->sandbox, &c->actor, f->count, ends_after_ms, forked, f, &err);
    if (r < 0) {
        call_drop(c, &err);
        mem_free(f);
    }
}

/* ---- checkpoints ---- */

void native_state_checkpoints(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(STATE_LIST_BYTES);
    char mode[CHECKPOINT_TEXT_MAX];
    size_t n;
    if (native_state_waits(c))
        return;
    const struct checkpoint *all = checkpoint_list(c->sandbox, &n);
    json_open(&b, "checkpoint", checkpoint_mode_format(checkpoint_mode(c->sandbox), mode));
    buf_append_cstr(&b, ",\"checkpoints\":[");
    for (size_t i = 0; i < n; i++) {
        buf_printf(&b, "%s{\"seq\":%llu", i ? "," : "", (unsigned long long)all[i].seq);
        native_append_time(&b, "at", all[i].at);
        buf_append_char(&b, '}');
    }
    buf_append_cstr(&b, "]}");
    call_json_buf(c, 200, &b);
}

static void native_state_rewound(void *ctx, struct sandbox *sb, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(STATE_LIST_BYTES);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    buf_printf(&b, "{\"checkpoint\":%llu,\"sandbox\":", *(const unsigned long long *)c->state);
    native_append_sandbox(&b, sb);
    buf_append_char(&b, '}');
    call_json_buf(c, 200, &b);
}

void native_state_rewind(struct call *c)
{
    int64_t seq = 0;
    if (!CALL_WANTS(c, JSON_WANT_INT("seq", 1, INT64_MAX, &seq)) || native_state_waits(c))
        return;
    const struct checkpoint *one = checkpoint_find(c->sandbox, (uint64_t)seq);
    unsigned long long *of = call_state(c, sizeof(*of), NULL);
    *of = one ? one->seq : 0;
    if (!seq)
        call_refuse(c, ERR_INVALID_ARGUMENT, "\"seq\" is missing: the event whose files to restore");
    else
        call_held(c, sandbox_rewind(c->sandbox, &c->actor, (uint64_t)seq, native_state_rewound, call_hold(c), &c->err));
}

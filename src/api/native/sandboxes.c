/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes themselves: making, listing, ending, their time and figures. */
#include "api/native/handlers.h"
#include "guard/rules.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/network/network.h"

enum { ENDED_LOOKED_AT = 2000, PAGE_MAX = 500, PAGE_BYTES = 1 << 20, SANDBOX_JSON_MAX = 4 << 20 };

/* Environment values are left out: they are where people put secrets. */
json_t *native_sandbox_json(const struct sandbox *sb)
{
    const struct sandbox_info *s = sandbox_info(sb);
    bool is_paused = s->state == SANDBOX_PAUSED;
    char text[CHECKPOINT_TEXT_MAX];
    const int mode = checkpoint_mode(sb);
    json_t *metadata = json_object(), *volumes = json_array(), *one;
    for (size_t i = 0; i < s->n_metadata; i++)
        (void)json_object_setn_new(metadata, s->metadata[i].key.p, s->metadata[i].key.n,
                                   call_text(s->metadata[i].value));
    for (size_t i = 0; i < s->n_mounts; i++)
        (void)json_array_append_new(volumes,
                                    json_pack("{s:o,s:o,s:b}", "name", call_text(s->mounts[i].name), "path",
                                              call_text(s->mounts[i].path), "read_only", s->mounts[i].read_only));
    one = json_pack(
        "{s:s,s:s,s:s*,s:s?,s:s,s:b,s:s?,s:s?,s:o?,s:o?,s:I,s:i,s:I,s:I,s:o,s:o,s:s,s:b,s:b}", "id", s->id, "state",
        sandbox_state_name(s->state), "tenant", sandbox_tenant(sb), "port_alias", s->port_alias, "tier", s->tier,
        "secure", s->secure, "template", s->template_id, "template_alias", s->template_alias, "started_at",
        call_time(s->started), "end_at", call_time(is_paused ? 0 : s->end_at) /* its time does not run */, "timeout_ms",
        (json_int_t)s->timeout_ms, "cpu_milli", (int)s->cpu_milli, "memory_bytes", (json_int_t)s->memory_bytes,
        "disk_bytes", (json_int_t)s->disk_bytes, "metadata", metadata, "volumes", volumes, "on_timeout",
        s->pause_on_timeout ? "pause" : "kill", "pause_memory", !s->pause_files_only, "auto_resume", s->auto_resume);
    if (is_paused)
        (void)json_object_update_new(one, json_pack("{s:b,s:b}", "has_memory", s->has_memory, "on_disk", s->on_disk));
    (void)json_object_update_new(
        one, json_pack("{s:o*,s:o*,s:o*,s:s*,s:s,s:o?,s:s?}", "volumes_failed", call_cstr(s->volumes_failed),
                       "start_failed", call_cstr(s->start_failed), "stuck", call_cstr(s->stuck), "checkpoint",
                       mode == CHECKPOINT_OFF ? NULL : checkpoint_mode_format(mode, text).p, "network",
                       network_is_up(sb) ? "up" : "down", "ended_at", call_time(s->ended), "end_cause", s->end_cause));
    return one;
}

void native_on_sandbox(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, c->route->method == HTTP_METHOD_POST && !(c->route->flags & ROUTE_SANDBOX) ? 201 : 200,
                   native_sandbox_json(sb));
}

/* ---- list ---- */

/* A page goes on behind "<started>-<id>": newest first, equal times by id. */
struct native_sandboxes_page {
    struct buf b;
    uint64_t limit, n;
    usec_t after_started;
    char after_id[ID_SANDBOX_LEN + 1];
    bool has_after, more, own;
    uint64_t tenant; /* who asks */
    usec_t last_started;
    char last_id[ID_SANDBOX_LEN + 1];
};

static int parse_after(struct str text, struct native_sandboxes_page *p)
{
    ssize_t dash = str_find_char(text, '-');
    struct str id = dash < 0 ? STR_NULL : str_sub(text, (size_t)dash + 1);
    if (dash < 0 || str_to_u64(str_n(text.p, (size_t)dash), &p->after_started) < 0 || !id_is_sandbox(id))
        return -EINVAL;
    memcpy(p->after_id, id.p, ID_SANDBOX_LEN);
    p->has_after = true;
    return 0;
}

static bool native_sandboxes_list_one(void *ctx, struct sandbox *sb)
{
    struct native_sandboxes_page *p = ctx;
    const struct sandbox_info *s = sandbox_info(sb);
    if (s->hidden || (p->own && s->tenant != p->tenant))
        return true;
    if (p->has_after &&
        (s->started > p->after_started || (s->started == p->after_started && strcmp(s->id, p->after_id) <= 0)))
        return true;
    if (p->n == p->limit || buf_len(&p->b) > PAGE_BYTES) {
        p->more = true;
        return false;
    }
    p->n++;
    json_put_value(&p->b, native_sandbox_json(sb));
    p->last_started = s->started;
    memcpy(p->last_id, s->id, sizeof(p->last_id));
    return true;
}

static bool native_sandboxes_list_ended(void *ctx, const struct sandbox_ended *s)
{
    struct native_sandboxes_page *p = ctx;
    if (p->n++ == p->limit || buf_len(&p->b) > PAGE_BYTES)
        return false;
    json_put_value(&p->b, json_pack("{s:s,s:s,s:b,s:s?,s:s?,s:o?,s:o?,s:s?,s:i,s:I,s:o?}", "id", s->id, "state",
                                    sandbox_state_name(s->has_failed ? SANDBOX_FAILED : SANDBOX_ENDED), "secure",
                                    s->secure, "template", s->template_id, "template_alias",
                                    *s->template_alias ? s->template_alias : NULL, "started_at", call_time(s->started),
                                    "ended_at", call_time(s->ended), "end_cause", s->end_cause, "cpu_milli",
                                    (int)s->cpu_milli, "memory_bytes", (json_int_t)s->memory_bytes, "metadata",
                                    json_loads(s->metadata, 0, NULL)));
    return true;
}

/* The latest ones, without pages: who wants all that was has the events. */
static void native_sandboxes_answer_ended(struct call *c, struct native_sandboxes_page *p)
{
    buf_append_cstr(&p->b, "{\"sandboxes\":[");
    if (!call_ok(c, sandbox_each_ended(call_core(c), c->actor.who.view, ENDED_LOOKED_AT, native_sandboxes_list_ended, p,
                                       &c->err)))
        return;
    buf_append_cstr(&p->b, "],\"next\":null}");
    call_json_buf(c, 200, &p->b);
}

void native_sandboxes_list(struct call *c)
{
    struct native_sandboxes_page p = {.b = BUF_INIT(PAGE_BYTES + SANDBOX_JSON_MAX), .tenant = c->actor.who.tenant};
    struct str after, state = STR_NULL;
    if (call_query_u64(c, "limit", &p.limit) < 0 || call_query_bool(c, "own", &p.own) < 0)
        return;
    if (call_query(c, "state", &state) && !str_eqc(state, "ended")) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "state must be \"ended\"");
        return;
    }
    if (p.limit == 0 || p.limit > PAGE_MAX)
        p.limit = PAGE_MAX;
    if (state.p) {
        native_sandboxes_answer_ended(c, &p);
        buf_fini(&p.b);
        return;
    }
    if (call_query(c, "after", &after) && parse_after(after, &p) < 0) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "after must be the \"next\" of the previous page");
        return;
    }
    buf_append_cstr(&p.b, "{\"sandboxes\":[");
    access_each_sandbox(c, native_sandboxes_list_one, &p);
    if (p.more)
        buf_printf(&p.b, "],\"next\":\"%llu-%s\"}", (unsigned long long)p.last_started, p.last_id);
    else
        buf_append_cstr(&p.b, "],\"next\":null}");
    call_json_buf(c, 200, &p.b);
    buf_fini(&p.b);
}

/* ---- one ---- */

void native_sandboxes_get(struct call *c)
{
    call_value(c, 200, native_sandbox_json(c->sandbox));
}

void native_sandboxes_kill(struct call *c)
{
    call_held(c, sandbox_kill(c->sandbox, &c->actor, native_on_sandbox, call_hold(c), &c->err));
}

void native_sandboxes_timeout(struct call *c)
{
    int64_t timeout_ms = 0;
    bool extend_only = false;
    if (!CALL_WANTS(c, JSON_NEED_INT("timeout_ms", 0, INT64_MAX, &timeout_ms),
                    JSON_WANT_BOOL("extend_only", &extend_only)))
        return;
    if (call_ok(c, sandbox_set_timeout(c->sandbox, &c->actor, (uint64_t)timeout_ms, extend_only, &c->err)))
        native_sandboxes_get(c);
}

void native_sandboxes_violation(struct call *c)
{
    struct sandbox_violation v = {0};
    if (CALL_WANTS(c, JSON_NEED_STR("environment", &v.environment), JSON_NEED_STR("reason", &v.reason),
                   JSON_WANT_STR("path", &v.path), JSON_WANT_STR("commit", &v.commit)) &&
        call_ok(c, sandbox_violated(c->sandbox, &c->actor, &v, &c->err)))
        call_empty(c, 204);
}

void native_sandboxes_received(struct call *c)
{
    struct sandbox_receipt r = {0};
    uint64_t seq;
    if (CALL_WANTS(c, JSON_NEED_STR("environment", &r.environment), JSON_NEED_STR("digest", &r.digest),
                   JSON_WANT_STRS("commits", &r.commits, &r.n_commits)) &&
        call_ok(c, sandbox_received(c->sandbox, &c->actor, &r, &seq, &c->err)))
        call_value(c, 200, json_pack("{s:I}", "seq", (json_int_t)seq));
}

void native_sandboxes_metrics(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(4 << 20);
    size_t n;
    const struct sandbox_sample *samples = sandbox_samples(c->sandbox, &n);
    buf_append_cstr(&b, "{\"samples\":[");
    for (size_t i = 0; i < n; i++) {
        const struct sandbox_sample *s = &samples[i];
        char at[CLOCK_TEXT_MAX], used[24] = "null", total[24] = "null";
        clock_format(s->at, 3, at);
        if (s->disk_is_counted)
            (void)snprintf(used, sizeof(used), "%llu", (unsigned long long)s->disk_used);
        if (s->disk_is_limited)
            (void)snprintf(total, sizeof(total), "%llu", (unsigned long long)s->disk_total);
        buf_printf(&b,
                   "%s{\"at\":\"%s\",\"cpu_count\":%u,\"cpu_used_pct\":%.2f,\"memory_used\":%llu,\"memory_total\":%llu,"
                   "\"memory_cache\":%llu,\"disk_used\":%s,\"disk_total\":%s}",
                   i ? "," : "", at, s->cpu_count, s->cpu_used_pct, (unsigned long long)s->memory_used,
                   (unsigned long long)s->memory_total, (unsigned long long)s->memory_cache, used, total);
    }
    buf_append_cstr(&b, "]}");
    call_json_buf(c, 200, &b);
}

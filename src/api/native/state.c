/* SPDX-License-Identifier: Apache-2.0 */
/* Pausing, resuming, snapshots and forks. */
#include "api/json_read.h"
#include "api/native/call.h"
#include "base/mem.h"
#include "sandbox/layers.h"
#include "sandbox/pause.h"
#include "sandbox/snapshot.h"
#include "sandbox/templates.h"
#include "template/builds.h"

#include <stdlib.h>

enum { LIST_BYTES = 4 << 20, FORKS_BYTES = 8 << 20 };

/* The sandbox of a request whose body is an object with these members at most. NULL: answered. */
static struct sandbox *subject(struct call *c, int error, struct str body, const char *const *known, size_t n_known,
                               json_t **ret_json)
{
    struct err err;
    if (!native_read_object(c, error, body, ret_json))
        return NULL;
    struct sandbox *sb = native_sandbox(c);
    if (!sb || json_only(*ret_json, known, n_known, &err) == 0)
        return sb;
    native_error(c, &err);
    return NULL;
}

/* ---- pause and resume ---- */

static void changed(void *ctx, struct sandbox *sb, const struct err *err)
{
    native_answer_wait(ctx, 200, sb, err);
}

static void pause_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    static const char *const known[] = {"memory"};
    bool memory = true;
    struct err err;
    struct sandbox *sb = subject(c, error, body, known, ARRAY_SIZE(known), &json);
    if (!sb)
        return;
    if (json_get_bool(json, "memory", &memory, &err) < 0) {
        native_error(c, &err);
        return;
    }
    struct wait *w = native_wait_new(c);
    if (sandbox_pause(sb, &c->actor, memory, changed, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

void native_state_pause(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, pause_body, c);
}

static void resume_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    static const char *const known[] = {"timeout_ms", "cold"};
    struct sandbox_resume how = {0};
    int64_t timeout_ms = -1;
    struct err err;
    struct sandbox *sb = subject(c, error, body, known, ARRAY_SIZE(known), &json);
    if (!sb)
        return;
    if (json_get_bool(json, "cold", &how.cold, &err) < 0 ||
        json_get_int(json, "timeout_ms", 0, INT64_MAX, &timeout_ms, &err) < 0) {
        native_error(c, &err);
        return;
    }
    how.has_timeout = timeout_ms >= 0;
    how.timeout_ms = how.has_timeout ? (uint64_t)timeout_ms : 0;
    struct wait *w = native_wait_new(c);
    if (sandbox_resume(sb, &c->actor, &how, changed, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

void native_state_resume(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, resume_body, c);
}

/* ---- snapshots ---- */

static void append_snapshot(struct buf *b, const struct template *t)
{
    char at[CLOCK_TEXT_MAX];
    buf_append_cstr(b, "{\"ref\":");
    buf_append_json_string(b, str_of(t->ref ? t->ref : t->id));
    native_append_text(b, "name", t->name);
    native_append_text(b, "sandbox", t->source);
    native_append_text(b, "layer", t->layer);
    clock_format(t->built, 3, at);
    buf_printf(b, ",\"at\":\"%s\",\"cpu_milli\":%u,\"memory_bytes\":%llu,\"disk_bytes\":%llu}", at, t->cpu_milli,
               (unsigned long long)t->memory_bytes, (unsigned long long)t->disk_bytes);
}

static void snapshot_made(void *ctx, const struct template *t, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(LIST_BYTES);
    struct call *c = native_wait_take(ctx);
    if (c && err) {
        native_error(c, err);
    } else if (c) {
        append_snapshot(&b, t);
        native_json(c, 201, &b);
    }
}

static void snapshot_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    static const char *const known[] = {"name"};
    struct str name = STR("");
    struct err err;
    struct sandbox *sb = subject(c, error, body, known, ARRAY_SIZE(known), &json);
    if (!sb)
        return;
    if (json_get_str(json, "name", &name, &err) < 0) {
        native_error(c, &err);
        return;
    }
    struct wait *w = native_wait_new(c);
    if (sandbox_snapshot(sb, &c->actor, name, snapshot_made, w, &err) < 0)
        native_error(native_wait_take(w), &err);
}

void native_state_snapshot(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, snapshot_body, c);
}

struct listing {
    struct str source; /* p NULL: any */
    const struct template **found;
    size_t n, cap;
};

static bool collect(void *ctx, const struct template *t)
{
    struct listing *l = ctx;
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
static int compare(const void *a, const void *b)
{
    const struct template *x = *(const struct template *const *)a, *y = *(const struct template *const *)b;
    return x->built != y->built ? (x->built > y->built ? -1 : 1) : (x > y) - (x < y);
}

void native_state_snapshots(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(LIST_BYTES);
    struct listing l = {.source = STR_NULL};
    (void)native_query(c, "sandbox", &l.source);
    core_templates_each(c->native->config.core, collect, &l);
    if (l.n)
        qsort(l.found, l.n, sizeof(struct template *), compare);
    buf_append_cstr(&b, "{\"snapshots\":[");
    for (size_t i = 0; i < l.n; i++) {
        if (i && l.found[i] == l.found[i - 1])
            continue;
        if (i)
            buf_append_char(&b, ',');
        append_snapshot(&b, l.found[i]);
    }
    buf_append_cstr(&b, "]}");
    mem_free(l.found);
    native_json(c, 200, &b);
}

/* "name:tag" of a name that has other tags is that one alone. */
static int remove_tag(struct call *c, const struct template_info *info, struct str tag, struct err *err)
{
    struct core *core = c->native->config.core;
    if (str_eqc(tag, "default"))
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "%s has other tags, and needs this one: remove those first, or all of it by its name alone",
                       info->name);
    AUTO_FREE char *name = mem_strdup(info->name);
    if (core_template_untag(core, &c->actor, str_of(name), &tag, 1, err) < 0)
        return -1;
    return core_templates_commit(core, err);
}

static int remove_snapshot(struct call *c, struct str ref, struct err *err)
{
    struct core *core = c->native->config.core;
    struct template_info info;
    ssize_t colon = str_find_char(ref, ':');
    if (template_info_find(core_templates(core), ref, &info, err) < 0)
        return -1;
    if (!info.is_snapshot)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.*s is a template and no snapshot", (int)MIN(ref.n, (size_t)128),
                       ref.p);
    if (colon >= 0 && info.name && info.n_tags > 1)
        return remove_tag(c, &info, str_sub(ref, (size_t)colon + 1), err);
    return core_template_remove(core, &c->actor, ref, err);
}

void native_state_snapshot_remove(struct call *c)
{
    struct str ref;
    struct err err;
    if (!native_query(c, "ref", &ref) || !ref.n)
        native_refuse(c, ERR_INVALID_ARGUMENT, "ref is missing: the snapshot's id or name");
    else if (remove_snapshot(c, ref, &err) < 0)
        native_error(c, &err);
    else
        native_empty(c, 204);
}

/* ---- forks ---- */

struct forks {
    struct wait *wait;
    size_t count;
    char *results[]; /* JSON, owned */
};

static void answer_forks(struct forks *f)
{
    AUTO_BUF struct buf b = BUF_INIT(FORKS_BYTES);
    struct call *c = native_wait_take(f->wait);
    buf_append_cstr(&b, "{\"forks\":[");
    for (size_t i = 0; i < f->count; i++) {
        if (i)
            buf_append_char(&b, ',');
        buf_append_cstr(&b, f->results[i] ? f->results[i] : "null");
        mem_free(f->results[i]);
    }
    buf_append_cstr(&b, "]}");
    if (c)
        native_json(c, 201, &b);
    mem_free(f);
}

static void forked(void *ctx, size_t i, struct sandbox *fork, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(FORKS_BYTES);
    struct forks *f = ctx;
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

static void fork_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    static const char *const known[] = {"count", "timeout_ms"};
    int64_t count = 1, timeout_ms = -1;
    struct err err;
    struct sandbox *sb = subject(c, error, body, known, ARRAY_SIZE(known), &json);
    if (!sb)
        return;
    if (json_get_int(json, "count", 1, FORKS_MAX, &count, &err) < 0 ||
        json_get_int(json, "timeout_ms", 0, INT64_MAX, &timeout_ms, &err) < 0) {
        native_error(c, &err);
        return;
    }
    struct forks *f = mem_alloc(sizeof(*f) + (size_t)count * sizeof(f->results[0]));
    memset(f, 0, sizeof(*f) + (size_t)count * sizeof(f->results[0]));
    f->count = (size_t)count;
    f->wait = native_wait_new(c);
    if (sandbox_fork(sb, &c->actor, f->count, timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms, forked, f, &err) <
        0) {
        native_error(native_wait_take(f->wait), &err);
        mem_free(f);
    }
}

void native_state_fork(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, fork_body, c);
}

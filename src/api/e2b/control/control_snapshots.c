/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots and forks. A snapshot is a template that was made from a running sandbox; its deletion is that of a
 * template. */
#include "api/e2b/control/control.h"
#include "api/e2b/control/create_spec.h"
#include "api/e2b/control/sandbox_json.h"
#include "base/mem.h"
#include "http/client/connect.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/templates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void append_snapshot(struct buf *b, const struct template *t)
{
    json_open(b, "snapshotID", str_of(t->ref ? t->ref : t->id));
    buf_append_cstr(b, ",\"names\":[");
    if (t->name)
        buf_append_json_string(b, str_of(t->name));
    buf_append_cstr(b, "]}");
}

/* ---- making one ---- */

static void control_snapshots_on_made(void *ctx, const struct template *t, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    append_snapshot(&b, t);
    call_json(c, 201, buf_str(&b));
}

void control_snapshot(struct call *c)
{
    struct str name = STR(""), ref = STR("");
    if (CALL_WANTS(c, JSON_WANT_STR("name", &name)) &&
        (!str_trim(name).n || call_ok(c, template_ref_read(name, http_arena(c->req), &ref, &c->err))))
        call_held(c, sandbox_snapshot(c->sandbox, &c->actor, ref, control_snapshots_on_made, call_hold(c), &c->err));
}

/* ---- the list ---- */

struct snapshots {
    struct str source, name, tag; /* p NULL: any */
    const struct template **found;
    size_t n, cap;
};

/* "[namespace/]name": equal, or equal but for the namespace when the wanted one has none. */
static bool control_snapshots_is_name(const char *name, struct str wanted)
{
    const char *slash = strrchr(name, '/');
    return str_eqc(wanted, name) || (slash && str_find_char(wanted, '/') < 0 && str_eqc(wanted, slash + 1));
}

static bool control_snapshots_collect(void *ctx, const struct template *t)
{
    struct snapshots *all = ctx;
    const char *tag = t->ref ? strrchr(t->ref, ':') : NULL;
    if (!t->is_snapshot || (all->source.p && !(t->source && str_eqc(all->source, t->source))) ||
        (all->name.p && !(t->name && control_snapshots_is_name(t->name, all->name))) ||
        (all->tag.p && !(tag && str_eqc(all->tag, tag + 1))))
        return true;
    if (all->n == all->cap) {
        all->cap = MAX(2 * all->cap, (size_t)64);
        all->found = mem_realloc(all->found, all->cap * sizeof(struct template *));
    }
    all->found[all->n++] = t;
    return true;
}

/* Newest first, then by what clients call them. */
static int order(usec_t built, const char *ref, usec_t built2, const char *ref2)
{
    return built != built2 ? (built > built2 ? -1 : 1) : strcmp(ref, ref2);
}

static const char *ref_of(const struct template *t)
{
    return t->ref ? t->ref : t->id;
}

static int control_snapshots_compare(const void *a, const void *b)
{
    const struct template *x = *(const struct template *const *)a, *y = *(const struct template *const *)b;
    return order(x->built, ref_of(x), y->built, ref_of(y));
}

enum { REF_MAX = 256, LIMIT_MAX = 100 };

/* A page goes on behind "<built>_<ref>". */
struct position {
    usec_t built;
    char ref[REF_MAX];
};

static bool parse_position(struct str text, struct position *ret_position)
{
    struct str built;
    if (!str_split(&text, '_', &built) || str_to_u64(built, &ret_position->built) < 0 || !text.n || text.n >= REF_MAX ||
        str_has_nul(text))
        return false;
    memcpy(ret_position->ref, text.p, text.n);
    ret_position->ref[text.n] = '\0';
    return true;
}

static void control_snapshots_answer(struct call *c, struct snapshots *all, size_t limit, const struct position *after)
{
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);
    char next[REF_MAX + 32];
    size_t i = 0, n = 0;
    if (all->n)
        qsort(all->found, all->n, sizeof(struct template *), control_snapshots_compare);
    for (size_t k = 1, kept = MIN(all->n, (size_t)1), most = all->n; k < most; k++, all->n = kept)
        if (all->found[k] != all->found[kept - 1])
            all->found[kept++] = all->found[k]; /* one with two tags came twice */
    while (after && i < all->n && order(all->found[i]->built, ref_of(all->found[i]), after->built, after->ref) <= 0)
        i++;
    buf_append_char(&b, '[');
    for (; i < all->n && n < limit; i++, n++)
        append_snapshot(&b, all->found[i]);
    buf_append_char(&b, ']');
    if (i < all->n && n) {
        snprintf(next, sizeof(next), "%" PRIu64 "_%s", all->found[i - 1]->built, ref_of(all->found[i - 1]));
        http_add_header(c->req, STR("x-next-token"), str_of(next));
    }
    call_json_buf(c, 200, &b);
}

static bool read_name(struct call *c, struct snapshots *all)
{
    struct str value, given, ref;
    struct err err;
    ssize_t colon;
    if (http_query_get(c->req, "name", &value) != 1 || !value.n)
        return true;
    given = value;
    if (template_ref_read(value, http_arena(c->req), &ref, &err) < 0)
        return call_fail(c, 400, "Invalid snapshot name: %s", err.msg);
    colon = str_find_char(ref, ':');
    all->name = colon < 0 ? ref : str_n(ref.p, (size_t)colon);
    if (colon >= 0)
        all->tag = str_sub(ref, (size_t)colon + 1);
    else if (str_find_char(given, ':') >= 0)
        all->tag = STR("default"); /* asked for, and what a name without one means */
    return true;
}

void control_snapshots(struct call *c)
{
    struct snapshots all = {.source = STR_NULL, .name = STR_NULL, .tag = STR_NULL};
    struct position after;
    uint64_t limit = LIMIT_MAX;
    bool has_after = false;
    struct str value;
    if (http_query_get(c->req, "limit", &value) == 1 && value.n &&
        (str_to_u64(value, &limit) < 0 || limit < 1 || limit > LIMIT_MAX)) {
        call_fail(c, 400,
                  "validation error: parameter \"limit\" in query has an error: number must be between 1 and 100");
        return;
    }
    if (http_query_get(c->req, "nextToken", &value) == 1 && value.n && !(has_after = parse_position(value, &after))) {
        call_fail(c, 400, "Invalid next token");
        return;
    }
    if (http_query_get(c->req, "sandboxID", &value) == 1 && value.n)
        str_split(&value, '-', &all.source);
    if (!read_name(c, &all))
        return;
    core_templates_each(call_core(c), c->actor.who.view, control_snapshots_collect, &all);
    control_snapshots_answer(c, &all, (size_t)limit, has_after ? &after : NULL);
    mem_free(all.found);
}

/* ---- forks ---- */

struct forks {
    struct call *call; /* referenced */
    size_t count;
    char *results[]; /* JSON, owned; NULL: not there yet */
};

static void answer_forks(struct forks *f)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    buf_append_char(&b, '[');
    for (size_t i = 0; i < f->count; i++) {
        json_put_comma(&b);
        buf_append_cstr(&b, f->results[i] ? f->results[i]
                                          : "{\"error\":{\"code\":500,\"message\":\"nothing came of it\"}}");
        mem_free(f->results[i]);
    }
    buf_append_char(&b, ']');
    if (f->call->req)
        call_json_buf(f->call, 201, &b);
    call_unref(f->call);
    mem_free(f);
}

static void on_forked(void *ctx, size_t i, struct sandbox *fork, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(16384);
    struct forks *f = ctx;
    if (i >= f->count) {
        answer_forks(f);
        return;
    }
    if (err) {
        buf_append_cstr(&b, "{\"error\":");
        e2b_append_error(&b, connect_status(err->code), err->code, str_of(err->msg), NULL);
    } else {
        buf_append_cstr(&b, "{\"sandbox\":");
        sandbox_json_access(&b, sandbox_info(fork), e2b_of(f->call)->domain);
    }
    buf_append_char(&b, '}');
    f->results[i] = mem_strndup(buf_data(&b), buf_len(&b));
}

void control_fork(struct call *c)
{
    int64_t count = 1, seconds = -1;
    struct forks *f;
    struct err err;
    if (!CALL_WANTS(c, JSON_WANT_INT("count", 1, FORKS_MAX, &count), JSON_WANT_INT("timeout", 1, INT32_MAX, &seconds)))
        return;
    if (sandbox_info(c->sandbox)->state != SANDBOX_RUNNING) {
        call_refuse(c, ERR_FAILED_PRECONDITION, "it does not run");
        return;
    }
    f = mem_alloc(sizeof(*f) + (size_t)count * sizeof(f->results[0]));
    memset(f, 0, sizeof(*f) + (size_t)count * sizeof(f->results[0]));
    f->call = call_hold(c);
    f->count = (size_t)count;
    if (sandbox_fork(c->sandbox, &c->actor, f->count, seconds < 0 ? UINT64_MAX : (uint64_t)seconds * 1000, on_forked, f,
                     &err) < 0) {
        call_drop(c, &err);
        mem_free(f);
    }
}

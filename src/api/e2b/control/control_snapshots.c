/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots and forks. A snapshot is a template that was made from a running sandbox; its deletion is that of a
 * template. */
#include "api/e2b/control/control.h"
#include "api/e2b/control/create_spec.h"
#include "api/e2b/control/sandbox_json.h"
#include "api/kit/forks.h"
#include "base/mem.h"
#include "http/client/connect.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/templates.h"

#include <inttypes.h>

static json_t *control_snapshot_json(const struct template *t)
{
    return json_pack("{s:s,s:[s*]}", "snapshotID", template_called(t), "names", t->name);
}

/* ---- making one ---- */

static void control_snapshots_on_made(void *ctx, const struct template *t, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 201, control_snapshot_json(t));
}

void control_snapshot(struct call *c)
{
    struct str name = STR(""), ref = STR("");
    if (CALL_WANTS(c, JSON_WANT_STR("name", &name)) &&
        (!str_trim(name).n || call_ok(c, template_ref_read(name, http_arena(c->req), &ref, &c->err))))
        call_held(
            c, sandbox_snapshot(c->sandbox, &c->actor, ref, false, control_snapshots_on_made, call_hold(c), &c->err));
}

/* ---- the list ---- */

struct snapshots_wanted {
    struct str source, name, tag; /* p NULL: any */
};

/* "[namespace/]name": equal, or equal but for the namespace when the wanted one has none. */
static bool control_snapshots_is_name(const char *name, struct str wanted)
{
    const char *slash = strrchr(name, '/');
    return str_eqc(wanted, name) || (slash && str_find_char(wanted, '/') < 0 && str_eqc(wanted, slash + 1));
}

static bool control_snapshots_fit(const void *ctx, const struct template *t)
{
    const struct snapshots_wanted *s = ctx;
    const char *tag = t->ref ? strrchr(t->ref, ':') : NULL;
    return (!s->source.p || (t->source && str_eqc(s->source, t->source))) &&
           (!s->name.p || (t->name && control_snapshots_is_name(t->name, s->name))) &&
           (!s->tag.p || (tag && str_eqc(s->tag, tag + 1)));
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

static void control_snapshots_answer(struct call *c, const struct snapshots_wanted *wanted, size_t limit,
                                     const struct position *after)
{
    json_t *page = json_array();
    const struct template **found;
    char next[REF_MAX + 32];
    size_t i = 0, n = core_snapshots(call_core(c), c->actor.who.view, control_snapshots_fit, wanted, &found);
    while (after && i < n && template_order(found[i], after->built, after->ref) <= 0)
        i++;
    for (; i < n && json_array_size(page) < limit; i++)
        (void)json_array_append_new(page, control_snapshot_json(found[i]));
    if (i < n && json_array_size(page)) {
        snprintf(next, sizeof(next), "%" PRIu64 "_%s", found[i - 1]->built, template_called(found[i - 1]));
        http_add_header(c->req, STR("x-next-token"), str_of(next));
    }
    mem_free(found);
    call_value(c, 200, page);
}

static bool read_name(struct call *c, struct snapshots_wanted *all)
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
    struct snapshots_wanted all = {.source = STR_NULL, .name = STR_NULL, .tag = STR_NULL};
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
    control_snapshots_answer(c, &all, (size_t)limit, has_after ? &after : NULL);
}

/* ---- forks ---- */

static json_t *fork_json(struct call *c, const struct sandbox *fork, const struct err *err)
{
    return err ? json_pack("{s:o}", "error", e2b_error(connect_status(err->code), str_of(err->msg)))
               : json_pack("{s:o}", "sandbox", sandbox_json_access(sandbox_info(fork), e2b_of(c)->domain));
}

static void forks_answer(struct call *c, json_t *all)
{
    call_value(c, 201, all);
}

void control_fork(struct call *c)
{
    int64_t count = 1, seconds = -1;
    if (!CALL_WANTS(c, JSON_WANT_INT("count", 1, FORKS_MAX, &count), JSON_WANT_INT("timeout", 1, INT32_MAX, &seconds)))
        return;
    if (sandbox_info(c->sandbox)->state != SANDBOX_RUNNING) {
        call_refuse(c, ERR_FAILED_PRECONDITION, "it does not run");
        return;
    }
    struct forks *f = forks_new(c, (size_t)count, fork_json, forks_answer);
    forks_begun(f, sandbox_fork(c->sandbox, &c->actor, false, (size_t)count,
                                seconds < 0 ? UINT64_MAX : (uint64_t)seconds * 1000, forks_on, f, &c->err));
}

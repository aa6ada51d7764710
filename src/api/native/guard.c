/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's rules, what they would say, and the actions that wait for somebody's answer. */
#include "sandbox/guard.h"
#include "api/native/handlers.h"
#include "base/mem.h"
#include "sandbox/templates.h"

enum { TEST_ARGS_MAX = 1024 };

/* ---- rules ---- */

/* Of the route; its what: "service", "tenant", "template", "sandbox". False: answered. */
static bool guard_place_of(struct call *c, struct guard_place *ret_place)
{
    const struct template *t;
    *ret_place = (struct guard_place){.tenant = c->actor.who.tenant, .sandbox = c->sandbox};
    while (strcmp(c->route->what, guard_level_name(ret_place->level)) != 0)
        ret_place->level++;
    if (ret_place->level != GUARD_TEMPLATE)
        return true;
    if (!call_ok(c, core_template_find(call_core(c), c->actor.who.tenant, c->args[0], &t, &c->err)))
        return false;
    ret_place->template_id = arena_strdup(http_arena(c->req), t->id);
    return true;
}

static void guard_answer_rules(struct call *c, const struct guard_place *place)
{
    call_value(c, 200, json_incref((json_t *)guard_get(call_core(c), place)));
}

void native_guard_get(struct call *c)
{
    struct guard_place place;
    if (guard_place_of(c, &place))
        guard_answer_rules(c, &place);
}

void native_guard_set(struct call *c)
{
    struct guard_place place;
    if (!guard_place_of(c, &place) || !call_ok(c, guard_set(call_core(c), &c->actor, &place, c->body, &c->err)))
        return;
    if (c->body)
        guard_answer_rules(c, &place);
    else
        call_empty(c, 204);
}

void native_guard_rails(struct call *c)
{
    json_t *all = json_array();
    for (size_t i = 0; rails[i].name; i++)
        (void)json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:o}", "name", rails[i].name, "risk",
                                                   guard_risk_name(rails[i].risk), "about", rails[i].about, "rules",
                                                   json_loads(rails[i].rules, 0, NULL)));
    call_value(c, 200, json_pack("{s:o}", "rails", all));
}

void native_guard_test(struct call *c)
{
    struct str kind = STR("exec.start"), actor = str_of(c->actor.name), *argv;
    json_t *list = NULL, *data = NULL;
    struct guard_answer answer = {.rule = "none"};
    size_t n;
    if (!CALL_WANTS(c, JSON_WANT_STR("kind", &kind), JSON_WANT_STR("actor", &actor), JSON_WANT_ARRAY("argv", &list),
                    JSON_WANT_OBJECT("data", &data)))
        return;
    n = json_array_size(list);
    enum event_kind k = event_kind_parse(kind);
    if (!event_kind_is_action(k) || n > TEST_ARGS_MAX || (k == EVENT_EXEC_START && !n)) {
        call_refuse(c, ERR_INVALID_ARGUMENT,
                    "write \"kind\", an action, with its \"data\", or \"argv\" of a command, up to %d words",
                    TEST_ARGS_MAX);
        return;
    }
    argv = arena_alloc(http_arena(c->req), (n + 1) * sizeof(*argv));
    JSON_FOREACH_AT (i, one, list)
        argv[i] = json_str(one);
    const struct exec_spec exec = {.cmd = argv[0], .args = argv + 1, .n_args = n ? n - 1 : 0};
    AUTO_FREE char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
    const struct guard_question q = {.id = c->sandbox ? sandbox_info(c->sandbox)->id : "service",
                                     .kind = k,
                                     .actor = actor,
                                     .data = str_of(text ? text : "{}"),
                                     .tenant = c->sandbox ? sandbox_info(c->sandbox)->tenant : c->actor.who.tenant,
                                     .exec = n ? &exec : NULL,
                                     .wants_risk = true};
    enum guard_verdict verdict = guard_judge(call_core(c), &q, &answer);
    call_value(c, 200,
               json_pack("{s:s,s:b,s:o?,s:s?,s:o?}", "verdict",
                         guard_verdict_name(answer.is_analysed ? GUARD_ALLOW : verdict), "analysed", answer.is_analysed,
                         "rule", call_cstr(answer.rule), "risk", guard_risk_name(answer.risk), "reason",
                         call_cstr(answer.reason)));
}

/* ---- approvals ---- */

struct guard_list {
    const struct principal *who;
    json_t *all;
};

static bool guard_may_see(const struct principal *who, const struct hold_info *info)
{
    return view_has(who->view, info->question.tenant);
}

static bool guard_add_hold(void *ctx, const struct hold_info *info)
{
    const struct guard_list *l = ctx;
    const struct guard_question *q = &info->question;
    if (guard_may_see(l->who, info))
        (void)json_array_append_new(
            l->all,
            json_pack("{s:s,s:s,s:s,s:o,s:o?,s:s?,s:o?,s:s,s:o?,s:o?,s:o?}", "id", info->id, "on", q->id, "kind",
                      event_kind_name(q->kind), "actor", call_text(q->actor), "rule", call_cstr(info->answer.rule),
                      "risk", guard_risk_name(info->answer.risk), "reason", call_cstr(info->answer.reason), "waits_for",
                      info->is_analysed ? "analyser" : "approval", "asked_at", call_time(info->asked), "until",
                      call_time(info->until), "action", json_loadb(q->data.p, q->data.n, JSON_ALLOW_NUL, NULL)));
    return true;
}

void native_approvals_list(struct call *c)
{
    struct guard_list l = {&c->actor.who, json_array()};
    hold_each(call_core(c), guard_add_hold, &l);
    call_value(c, 200, json_pack("{s:o}", "approvals", l.all));
}

void native_approvals_answer(struct call *c)
{
    const struct hold_info *info = hold_find_id(call_core(c), c->args[0]);
    bool allow = false, always = false;
    if (!CALL_WANTS(c, JSON_WANT_BOOL("allow", &allow), JSON_WANT_BOOL("always", &always)))
        return;
    if (!json_object_get(c->body, "allow"))
        call_refuse(c, ERR_INVALID_ARGUMENT, "\"allow\" is missing: true or false");
    else if (!info || !guard_may_see(&c->actor.who, info))
        call_refuse(c, ERR_NOT_FOUND, "no waiting action has the id %.*s", STR_ARG_MAX(c->args[0], 64));
    else if ((!always || call_ok(c, guard_remember(call_core(c), &c->actor, info, allow, &c->err))) &&
             call_ok(c, hold_answer(call_core(c), c->args[0], allow, c->actor.name, &c->err)))
        call_empty(c, 204);
}

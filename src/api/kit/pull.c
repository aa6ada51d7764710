/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/pull.h"
#include "base/mem.h"
#include "http/client/docker_names.h"
#include "sandbox/templates.h"

enum { PULL_LOOK_MS = 200 };

static void pull_look(struct call *c)
{
    const struct pull *p = c->pull;
    const struct template_build *b =
        template_build_find(core_templates(call_core(c)), c->actor.who.view, str_of(p->build));
    if (b && (b->status == TEMPLATE_WAITING || b->status == TEMPLATE_BUILDING))
        call_set_timer(c, PULL_LOOK_MS, pull_look);
    else
        p->done(c, p,
                b && b->status == TEMPLATE_READY ? NULL
                : b && b->reason                 ? b->reason
                                                 : "the image was removed meanwhile");
}

static void pull_step(struct call *c)
{
    const struct pull *p = c->pull;
    if (!call_ok(c, builder_start(p->builder, &c->actor, p->build, &p->spec, &c->err)))
        return;
    if (p->begun)
        p->begun(c, p);
    call_set_timer(c, PULL_LOOK_MS, pull_look);
}

void pull_start(struct call *c, struct pull *p)
{
    struct arena *arena = http_arena(c->req);
    AUTO_FREE char *name = docker_template(p->spec.image);
    const struct template_build *build;
    const struct template *there;
    p->name = arena_str(arena, str_of(name)).p;
    c->pull = p;
    if (core_template_find(call_core(c), c->actor.who.view, str_of(p->name), &there, &c->err) == 0) {
        p->done(c, p, NULL);
        return;
    }
    const struct template_request request = {.name = str_of(p->name)};
    if (!p->builder)
        call_refuse(c, ERR_UNIMPLEMENTED, "this service can't build templates");
    else if (call_ok(c, core_template_request(call_core(c), &c->actor, &request, &build, &c->err))) {
        p->build = arena_strdup(arena, build->id);
        call_step(c, pull_step);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes themselves. What is in them: volume_content.c. */
#include "api/e2b/control/control.h"
#include "sandbox/volume/volumes.h"

static json_t *volume_json(const struct volume *v, bool with_token)
{
    return json_pack("{s:s,s:s,s:s*}", "volumeID", v->id, "name", v->name, "token", with_token ? v->token : NULL);
}

static const struct volume *control_volumes_find(struct call *c)
{
    const struct volume *v = volume_find(call_core(c), c->actor.who.view, c->args[0]);
    if (!v)
        call_fail(c, 404, "Volume \"%.*s\" not found", STR_ARG_MAX(c->args[0], VOLUME_NAME_MAX));
    return v;
}

static void control_volumes_on_made(void *ctx, const struct volume *v, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 201, volume_json(v, true));
}

void control_volume_make(struct call *c)
{
    struct str name = STR("");
    if (CALL_WANTS(c, JSON_NEED_STR("name", &name)))
        call_held(c, volume_make(call_core(c), &c->actor, name, 0, control_volumes_on_made, call_hold(c), &c->err));
}

static bool volumes_add(void *ctx, const struct volume *v)
{
    (void)json_array_append_new(ctx, volume_json(v, false));
    return true;
}

void control_volumes(struct call *c)
{
    json_t *all = json_array();
    volume_each(call_core(c), c->actor.who.view, volumes_add, all);
    call_value(c, 200, all);
}

void control_volume(struct call *c)
{
    const struct volume *v = control_volumes_find(c);
    if (v)
        call_value(c, 200, volume_json(v, access_may_use(&c->actor.who)));
}

static void control_volumes_on_dropped(void *ctx, const struct volume *v UNUSED, const struct err *err)
{
    control_on_done(ctx, NULL, err);
}

void control_volume_drop(struct call *c)
{
    if (control_volumes_find(c))
        call_held(c,
                  volume_drop(call_core(c), &c->actor, c->args[0], control_volumes_on_dropped, call_hold(c), &c->err));
}

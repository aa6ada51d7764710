/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes themselves. What is in them: volume_content.c. */
#include "api/e2b/control/control.h"
#include "sandbox/volume/volumes.h"

static void append_volume(struct buf *b, const struct volume *v, bool with_token)
{
    json_open(b, "volumeID", str_of(v->id));
    json_put_str(b, "name", str_of(v->name));
    if (with_token)
        json_put_str(b, "token", str_of(v->token));
    buf_append_char(b, '}');
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
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    append_volume(&b, v, true);
    call_json(c, 201, buf_str(&b));
}

void control_volume_make(struct call *c)
{
    struct str name = STR("");
    if (CALL_WANTS(c, JSON_NEED_STR("name", &name)))
        call_held(c, volume_make(call_core(c), &c->actor, name, 0, control_volumes_on_made, call_hold(c), &c->err));
}

static bool append_one(void *ctx, const struct volume *v)
{
    append_volume(ctx, v, false);
    return true;
}

void control_volumes(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    buf_append_char(&b, '[');
    volume_each(call_core(c), c->actor.who.view, append_one, &b);
    buf_append_char(&b, ']');
    call_json_buf(c, 200, &b);
}

void control_volume(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    const struct volume *v = control_volumes_find(c);
    if (!v)
        return;
    append_volume(&b, v, access_may_use(&c->actor.who));
    call_json(c, 200, buf_str(&b));
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

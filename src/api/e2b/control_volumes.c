/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes themselves. What is in them: volume_content.c. */
#include "api/e2b/control.h"
#include "sandbox/volumes.h"

static void append_volume(struct buf *b, const struct volume *v, bool with_token)
{
    buf_append_cstr(b, "{\"volumeID\":");
    buf_append_json_string(b, str_of(v->id));
    buf_append_cstr(b, ",\"name\":");
    buf_append_json_string(b, str_of(v->name));
    if (with_token) {
        buf_append_cstr(b, ",\"token\":");
        buf_append_json_string(b, str_of(v->token));
    }
    buf_append_char(b, '}');
}

static const struct volume *find(struct call *c)
{
    const struct volume *v = volume_find(c->e2b->core, c->args[0]);

    if (!v)
        call_fail(c, 404, "Volume \"%.*s\" not found", (int)MIN(c->args[0].n, (size_t)VOLUME_NAME_MAX), c->args[0].p);
    return v;
}

static void on_made(void *ctx, const struct volume *v, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct call *c = ctx;

    if (c->req && err) {
        call_fail_err(c, err);
    } else if (c->req) {
        append_volume(&b, v, true);
        call_json(c, 201, buf_str(&b));
    }
    call_unref(c);
}

static void on_make(struct call *c, const json_t *body)
{
    struct str name = STR("");
    struct err err;

    if (json_get_str(body, "name", &name, &err) < 0) {
        call_fail(c, 400, "validation error: request body has an error: %s", err.msg);
        return;
    }
    if (!name.n) {
        call_fail(c, 400, "validation error: request body has an error: property \"name\" is missing");
        return;
    }
    call_ref(c);
    if (volume_make(c->e2b->core, &c->actor, name, 0, on_made, c, &err) < 0) {
        call_fail_err(c, &err);
        call_unref(c);
    }
}

void control_volume_make(struct call *c)
{
    call_read_json(c, true, on_make);
}

static bool append_one(void *ctx, const struct volume *v)
{
    struct buf *b = ctx;

    if (buf_len(b) > 1)
        buf_append_char(b, ',');
    append_volume(b, v, false);
    return true;
}

void control_volumes(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);

    buf_append_char(&b, '[');
    volume_each(c->e2b->core, append_one, &b);
    buf_append_char(&b, ']');
    call_json_buf(c, 200, &b);
}

void control_volume(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    const struct volume *v = find(c);

    if (!v)
        return;
    append_volume(&b, v, true);
    call_json(c, 200, buf_str(&b));
}

static void on_dropped(void *ctx, const struct volume *v, const struct err *err)
{
    struct call *c = ctx;

    (void)v;
    if (c->req && err)
        control_fail(c, NULL, err);
    else if (c->req)
        call_empty(c, 204);
    call_unref(c);
}

void control_volume_drop(struct call *c)
{
    const struct volume *v = find(c);
    struct err err;

    if (!v)
        return;
    call_ref(c);
    if (volume_drop(c->e2b->core, &c->actor, c->args[0], on_dropped, c, &err) < 0) {
        control_fail(c, NULL, &err);
        call_unref(c);
    }
}

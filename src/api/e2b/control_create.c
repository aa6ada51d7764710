/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control.h"
#include "api/e2b/create_spec.h"
#include "api/e2b/sandbox_json.h"

static void on_created(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = ctx;
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);

    if (c->req && err) {
        call_fail_err(c, err);
    } else if (c->req) {
        sandbox_json_access(&b, sandbox_info(sb), c->e2b->domain);
        call_json(c, 201, buf_str(&b));
    }
    call_unref(c);
}

static void create(struct call *c, const json_t *body, enum create_version version)
{
    struct core *core = c->e2b->core;
    struct sandbox_spec spec;
    struct err err;

    if (create_spec_read(body, version, core_config(core)->max_timeout_ms, http_arena(c->req), &spec, &err) < 0) {
        call_fail_err(c, &err);
        return;
    }
    call_ref(c);
    if (sandbox_create(core, &c->actor, &spec, on_created, c, &err) < 0) {
        call_fail_err(c, &err);
        call_unref(c);
    }
}

static void on_body_v1(struct call *c, const json_t *body)
{
    create(c, body, CREATE_V1);
}

static void on_body_v2(struct call *c, const json_t *body)
{
    create(c, body, CREATE_V2);
}

void control_create(struct call *c)
{
    call_read_json(c, true, on_body_v1);
}

void control_create_v2(struct call *c)
{
    call_read_json(c, true, on_body_v2);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control.h"
#include "api/e2b/network_body.h"
#include "api/e2b/sandbox_json.h"

void control_get(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(2 * BODY_MAX);
    struct sandbox *sb = control_sandbox(c);

    if (!sb)
        return;
    sandbox_json_detail(&b, sandbox_info(sb), network_fields(sb), c->e2b->domain);
    call_json_buf(c, 200, &b);
}

static void on_killed(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = ctx;

    (void)sb;
    if (c->req && err)
        call_fail_err(c, err);
    else if (c->req)
        call_empty(c, 204);
    call_unref(c);
}

void control_kill(struct call *c)
{
    struct sandbox *sb = control_sandbox(c);
    struct err err;

    if (!sb)
        return;
    call_ref(c);
    if (sandbox_kill(sb, &c->actor, on_killed, c, &err) < 0) {
        call_fail_err(c, &err);
        call_unref(c);
    }
}

/* ---- network ---- */

static void on_network_set(void *ctx, const struct err *err)
{
    struct call *c = ctx;

    if (c->req && err)
        call_fail_err(c, err);
    else if (c->req)
        call_empty(c, 204);
    call_unref(c);
}

static void on_network(struct call *c, const json_t *body)
{
    struct network_body network = {0};
    bool allow_internet = true;
    struct sandbox *sb;
    struct err err;

    if (json_get_bool(body, "allow_internet_access", &allow_internet, &err) < 0) {
        call_fail(c, 400, "validation error: request body has an error: %s", err.msg);
        return;
    }
    sb = control_sandbox(c);
    if (!sb)
        return;
    json_t *kept = json_deep_copy(network_fields(sb));
    if (!kept)
        kept = json_object();
    if (network_body_read(body, allow_internet, kept, &network, &err) < 0) {
        call_fail_err(c, &err);
    } else {
        call_ref(c);
        if (network_set(sb, &c->actor, &network.spec, on_network_set, c, &err) < 0) {
            control_fail(c, sb, &err);
            call_unref(c);
        }
    }
    network_body_fini(&network);
    json_decref(kept);
}

void control_network(struct call *c)
{
    call_read_json(c, false, on_network);
}

/* ---- time to live ---- */

bool control_set_timeout(struct call *c, struct sandbox *sb, int64_t seconds, bool extend_only)
{
    struct err err;

    if (sandbox_set_timeout(sb, &c->actor, (uint64_t)seconds * 1000, extend_only, &err) == 0)
        return true;
    control_fail(c, sb, &err);
    return false;
}

bool control_get_seconds(struct call *c, const json_t *body, const char *name, bool required, int64_t least,
                         int64_t *ret_seconds)
{
    struct err err;
    int r = json_get_int(body, name, least, INT32_MAX, ret_seconds, &err);

    if (r < 0)
        call_fail(c, 400, "validation error: request body has an error: %s", err.msg);
    else if (r == 0 && required)
        call_fail(c, 400, "validation error: request body has an error: property \"%s\" is missing", name);
    else
        return true;
    return false;
}

/* Less than nothing is at once, too: clients subtract times. */
static void on_timeout(struct call *c, const json_t *body)
{
    int64_t seconds = 0;
    struct sandbox *sb;

    if (!control_get_seconds(c, body, "timeout", true, INT32_MIN, &seconds))
        return;
    sb = control_sandbox(c);
    if (sb && control_set_timeout(c, sb, MAX(seconds, (int64_t)0), false))
        call_empty(c, 204);
}

void control_timeout(struct call *c)
{
    call_read_json(c, true, on_timeout);
}

static void on_refresh(struct call *c, const json_t *body)
{
    int64_t seconds = 15;
    struct sandbox *sb;

    if (!control_get_seconds(c, body, "duration", false, 0, &seconds))
        return;
    if (seconds > 3600) {
        call_fail(c, 400, "validation error: request body has an error: field \"duration\" must be between 0 and 3600");
        return;
    }
    sb = control_sandbox(c);
    if (sb && control_set_timeout(c, sb, MAX(seconds, (int64_t)15), true))
        call_empty(c, 204);
}

void control_refresh(struct call *c)
{
    call_read_json(c, true, on_refresh);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/control.h"
#include "api/e2b/control/network_body.h"
#include "api/e2b/control/sandbox_json.h"

void control_get(struct call *c)
{
    call_value(c, 200,
               sandbox_json_detail(sandbox_info(c->sandbox), network_fields(c->sandbox), e2b_of(c)->domain,
                                   access_may_use(&c->actor.who)));
}

void control_on_done(void *ctx, struct sandbox *sb UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_empty(c, 204);
}

void control_kill(struct call *c)
{
    call_held(c, sandbox_kill(c->sandbox, &c->actor, control_on_done, call_hold(c), &c->err));
}

/* ---- network ---- */

static void on_network_set(void *ctx, const struct err *err)
{
    control_on_done(ctx, NULL, err);
}

void control_network(struct call *c)
{
    struct network_body network = {0};
    bool allow_internet = true;
    if (!CALL_WANTS(c, JSON_WANT_BOOL("allow_internet_access", &allow_internet)))
        return;
    AUTO_JSON json_t *kept = json_deep_copy(network_fields(c->sandbox));
    if (!kept)
        kept = json_object();
    if (call_ok(c, network_body_read(c->body, allow_internet, kept, &network, &c->err)))
        call_held(c, network_set(c->sandbox, &c->actor, &network.spec, on_network_set, call_hold(c), &c->err));
    network_body_fini(&network);
}

/* ---- time to live ---- */

bool control_set_timeout(struct call *c, struct sandbox *sb, int64_t seconds, bool extend_only)
{
    return call_ok(c, sandbox_set_timeout(sb, &c->actor, (uint64_t)seconds * 1000, extend_only, &c->err));
}

/* Less than nothing is at once, too: clients subtract times. */
void control_timeout(struct call *c)
{
    int64_t seconds = 0;
    if (CALL_WANTS(c, JSON_NEED_INT("timeout", INT32_MIN, INT32_MAX, &seconds)) &&
        control_set_timeout(c, c->sandbox, MAX(seconds, (int64_t)0), false))
        call_empty(c, 204);
}

void control_refresh(struct call *c)
{
    int64_t seconds = 15;
    if (CALL_WANTS(c, JSON_WANT_INT("duration", 0, 3600, &seconds)) &&
        control_set_timeout(c, c->sandbox, MAX(seconds, (int64_t)15), true))
        call_empty(c, 204);
}

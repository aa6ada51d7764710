/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pausing, resuming, connecting. A request that finds the sandbox on its way into a pause waits for the end of it: to its client, "paused" and "being
 * paused" are the same.
 */
#include "api/e2b/control.h"
#include "api/e2b/sandbox_json.h"
#include "sandbox/pause.h"

enum { LOOK_AGAIN_MS = 5, TIMEOUT_V1_S = 15, TIMEOUT_V2_S = 300 };

/* ---- pause ---- */

static void on_paused(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = ctx;

    if (c->req && err)
        control_fail(c, sb, err);
    else if (c->req)
        call_empty(c, 204);
    call_unref(c);
}

static void on_pause(struct call *c, const json_t *body)
{
    struct sandbox *sb;
    bool memory = true;
    struct err err;

    if (json_get_bool(body, "memory", &memory, &err) < 0) {
        call_fail(c, 400, "validation error: request body has an error: %s", err.msg);
        return;
    }
    sb = control_sandbox(c);
    if (!sb)
        return;
    call_ref(c);
    if (sandbox_pause(sb, &c->actor, memory, on_paused, c, &err) < 0) {
        control_fail(c, sb, &err);
        call_unref(c);
    }
}

void control_pause(struct call *c)
{
    call_read_json(c, false, on_pause);
}

/* ---- resume and connect ---- */

struct connection {
    int64_t seconds;
    bool cold;
    bool must_be_paused; /* else one that runs is as good */
    bool joins;          /* somebody else's resume: its timeout is not ours */
};

static void answer(struct call *c, struct sandbox *sb, int status)
{
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);

    sandbox_json_access(&b, sandbox_info(sb), c->e2b->domain);
    call_json(c, status, buf_str(&b));
}

static void on_resumed(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = ctx;

    if (c->req && err) {
        control_fail(c, sb, err);
    } else if (c->req) {
        const struct connection *k = c->state;

        if (!k->joins || control_set_timeout(c, sb, k->seconds, true))
            answer(c, sb, 201);
    }
    call_unref(c);
}

static void proceed(struct call *c)
{
    struct connection *k = c->state;
    struct sandbox *sb = control_sandbox(c);
    struct err err;

    if (!sb)
        return;
    if (sandbox_info(sb)->state == SANDBOX_PAUSING) {
        call_set_timer(c, LOOK_AGAIN_MS, proceed);
    } else if (sandbox_info(sb)->state == SANDBOX_RUNNING && k->must_be_paused) {
        call_fail(c, 409, "Sandbox \"%s\" is already running", sandbox_info(sb)->id);
    } else if (sandbox_info(sb)->state == SANDBOX_RUNNING) {
        if (control_set_timeout(c, sb, k->seconds, true))
            answer(c, sb, 200);
    } else {
        const struct sandbox_resume how = {
            .has_timeout = true, .timeout_ms = (uint64_t)MAX(k->seconds, (int64_t)1) * 1000, .cold = k->cold};

        k->joins = sandbox_info(sb)->state == SANDBOX_RESUMING;
        call_ref(c);
        if (sandbox_resume(sb, &c->actor, &how, on_resumed, c, &err) < 0) {
            control_fail(c, sb, &err);
            call_unref(c);
        }
    }
}

static void begin(struct call *c, const json_t *body, bool timeout_required, struct connection connection)
{
    struct connection *k = arena_alloc(http_arena(c->req), sizeof(*k));
    bool memory = true;
    struct err err;

    *k = connection;
    c->state = k;
    if (!control_get_seconds(c, body, "timeout", timeout_required, 0, &k->seconds))
        return;
    if (json_get_bool(body, "memory", &memory, &err) < 0) {
        call_fail(c, 400, "validation error: request body has an error: %s", err.msg);
        return;
    }
    k->cold = !memory;
    proceed(c);
}

static void on_connect(struct call *c, const json_t *body)
{
    begin(c, body, true, (struct connection){.seconds = TIMEOUT_V1_S});
}

static void on_connect_v2(struct call *c, const json_t *body)
{
    begin(c, body, false, (struct connection){.seconds = TIMEOUT_V2_S});
}

static void on_resume(struct call *c, const json_t *body)
{
    begin(c, body, false, (struct connection){.seconds = TIMEOUT_V1_S, .must_be_paused = true});
}

void control_connect(struct call *c)
{
    call_read_json(c, true, on_connect);
}

void control_connect_v2(struct call *c)
{
    call_read_json(c, false, on_connect_v2);
}

void control_resume(struct call *c)
{
    call_read_json(c, false, on_resume);
}

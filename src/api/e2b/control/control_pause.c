/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pausing, resuming, connecting. A request that finds the sandbox on its way into a pause waits for the end of it: to
 * its client, "paused" and "being paused" are the same.
 */
#include "api/e2b/control/control.h"
#include "api/e2b/control/sandbox_json.h"
#include "sandbox/life/pause.h"

enum { LOOK_AGAIN_MS = 5, TIMEOUT_V1_S = 15, TIMEOUT_V2_S = 300 };

void control_pause(struct call *c)
{
    bool memory = true;
    if (CALL_WANTS(c, JSON_WANT_BOOL("memory", &memory)))
        call_held(c, sandbox_pause(c->sandbox, &c->actor, memory, control_on_done, call_hold(c), &c->err));
}

/* ---- resume and connect ---- */

struct pause_connection {
    int64_t seconds;
    bool cold;
    bool must_be_paused; /* else one that runs is as good */
    bool joins;          /* somebody else's resume: its timeout is not ours */
};

static void control_pause_answer(struct call *c, struct sandbox *sb, int status)
{
    call_value(c, status, sandbox_json_access(sandbox_info(sb), e2b_of(c)->domain));
}

static void joined(struct call *c)
{
    const struct pause_connection *k = c->state;
    if (control_set_timeout(c, c->sandbox, k->seconds, true))
        control_pause_answer(c, c->sandbox, 201);
}

static void on_resumed(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    const struct pause_connection *k = c ? c->state : NULL;
    if (c && k->joins)
        call_step(c, joined);
    else if (c)
        control_pause_answer(c, sb, 201);
}

static void look_again(struct call *c);

static void proceed(struct call *c)
{
    struct pause_connection *k = c->state;
    struct sandbox *sb = control_sandbox(c); /* it may be gone by now */

    if (!sb)
        return;
    if (sandbox_info(sb)->state == SANDBOX_PAUSING) {
        call_set_timer(c, LOOK_AGAIN_MS, look_again);
    } else if (sandbox_info(sb)->state == SANDBOX_RUNNING && k->must_be_paused) {
        call_fail(c, 409, "Sandbox \"%s\" is already running", sandbox_info(sb)->id);
    } else if (sandbox_info(sb)->state == SANDBOX_RUNNING) {
        if (control_set_timeout(c, sb, k->seconds, true))
            control_pause_answer(c, sb, 200);
    } else {
        const struct sandbox_resume how = {
            .has_timeout = true, .timeout_ms = (uint64_t)MAX(k->seconds, (int64_t)1) * 1000, .cold = k->cold};
        k->joins = sandbox_info(sb)->state == SANDBOX_RESUMING;
        call_held(c, sandbox_resume(sb, &c->actor, &how, on_resumed, call_hold(c), &c->err));
    }
}

static void look_again(struct call *c)
{
    call_step(c, proceed);
}

static void control_pause_begin(struct call *c, bool needs_timeout, struct pause_connection connection)
{
    struct pause_connection *k = call_state(c, sizeof(*k), NULL);
    bool memory = true;
    *k = connection;
    struct json_want timeout = JSON_WANT_INT("timeout", 0, INT32_MAX, &k->seconds);
    timeout.is_required = needs_timeout;
    if (!CALL_WANTS(c, timeout, JSON_WANT_BOOL("memory", &memory)))
        return;
    k->cold = !memory;
    call_step(c, proceed);
}

void control_connect(struct call *c)
{
    control_pause_begin(c, true, (struct pause_connection){.seconds = TIMEOUT_V1_S});
}

void control_connect_v2(struct call *c)
{
    control_pause_begin(c, false, (struct pause_connection){.seconds = TIMEOUT_V2_S});
}

void control_resume(struct call *c)
{
    control_pause_begin(c, false, (struct pause_connection){.seconds = TIMEOUT_V1_S, .must_be_paused = true});
}

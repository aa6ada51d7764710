/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start command of a template in a sandbox that starts, or starts anew on its files: started as if logged in, then
 * its ready command is tried until it succeeds, for READY_MS at most; one try may take all of that, as `sleep 20` does.
 * Who waits for the sandbox waits for that. Without a ready command it is enough that the start command began.
 */
#include "base/fault.h"
#include "base/mem.h"
#include "sandbox/exec/exec.h"
#include "sandbox/object.h"
#include "sandbox/start/make.h"

enum { READY_MS = 60000, AGAIN_FIRST_MS = 10, AGAIN_MOST_MS = 500, SAID_MAX = 120 };

static const struct actor launch_actor = {.name = "template", .is_own = true, .sets_up = true};

struct launch {
    struct sandbox *sb; /* whose we are */
    struct follow *start, *try;
    unsigned tries;
    usec_t until; /* monotonic */
    struct loop_alarm again;
    char said[SAID_MAX + 1]; /* the last of it, by either */
};

void launch_cancel(struct sandbox *sb)
{
    struct launch *l = TAKE_PTR(sb->launch);
    if (!l)
        return;
    exec_close(l->start);
    exec_close(l->try);
    loop_alarm_clear(sb->core->loop, &l->again);
    mem_free(l);
}

static void launch_finish(struct launch *l, const struct err *err)
{
    struct sandbox *sb = l->sb;
    struct err why;
    if (err)
        why = *err;
    launch_cancel(sb);
    start_done(sb, START_COMMAND, err ? &why : NULL);
}

static void fails(struct launch *l, const char *what)
{
    struct err err;
    (void)err_set(&err, ERR_FAILED_PRECONDITION, "%s%s%s", what, l->said[0] ? ": " : "", l->said);
    launch_finish(l, &err);
}

static int launch_run(struct launch *l, const char *command, uint64_t timeout_ms, const struct exec_ops *ops,
                      struct follow **ret_follow, struct err *err)
{
    struct str args[] = {
        STR("-c"), STR("if [ -x /bin/bash ]; then exec /bin/bash -l -c \"$1\"; else exec /bin/sh -l -c \"$1\"; fi"),
        STR("sh"), str_of(command)};
    struct exec_spec spec = {.cmd = STR("/bin/sh"),
                             .args = args,
                             .n_args = ARRAY_SIZE(args),
                             .timeout_ms = timeout_ms,
                             .said = l->said,
                             .said_size = sizeof(l->said)};
    return exec_start(l->sb, &launch_actor, &spec, ops, l, ret_follow, err);
}

/* ---- is it ready? ---- */

static void try_ready(struct launch *l);

static void on_again(struct loop_alarm *alarm)
{
    struct launch *l = container_of(alarm, struct launch, again);
    if (l->sb->ready_cmd)
        try_ready(l);
    else
        launch_finish(l, NULL);
}

static void ready_fails(struct launch *l)
{
    char what[160];
    (void)snprintf(what, sizeof(what), "the template's ready command, %.60s, did not succeed within %d s",
                   l->sb->ready_cmd, READY_MS / 1000);
    fails(l, what);
}

static void not_ready(struct launch *l)
{
    unsigned wait = MIN((unsigned)AGAIN_FIRST_MS << MIN(l->tries, 8u), (unsigned)AGAIN_MOST_MS);
    l->tries++;
    if (clock_mono() + wait * USEC_PER_MS >= l->until)
        ready_fails(l);
    else
        loop_alarm_set(l->sb->core->loop, &l->again, clock_mono() + wait * USEC_PER_MS, on_again);
}

static void launch_on_tried(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    if (err ? err->code == ERR_DEADLINE_EXCEEDED : exit->code || exit->signaled)
        not_ready(ctx);
    else
        launch_finish(ctx, err);
}

static void try_ready(struct launch *l)
{
    static const struct exec_ops ops = {.on_end = launch_on_tried};
    usec_t now = clock_mono();
    uint64_t left_ms = l->until > now ? (l->until - now) / USEC_PER_MS : 0;
    struct err err;
    if (launch_run(l, l->sb->ready_cmd, MAX(left_ms, (uint64_t)1), &ops, &l->try, &err) < 0)
        launch_finish(l, &err);
}

/* ---- the start command ---- */

static void launch_on_start(void *ctx, uint32_t pid UNUSED)
{
    struct launch *l = ctx;
    fault_point("core.launch.started");
    /* Not from within a callback of the session, which may have its exit as well. */
    loop_alarm_set(l->sb->core->loop, &l->again, clock_mono(), on_again);
}

static void launch_on_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    if (err)
        launch_finish(ctx, err);
    else if (exit->code || exit->signaled)
        fails(ctx, "the template's start command failed");
}

void launch_begin(struct sandbox *sb)
{
    static const struct exec_ops ops = {.on_start = launch_on_start, .on_end = launch_on_end};
    struct launch *l = mem_new(struct launch);
    struct err err;
    l->sb = sb;
    l->until = clock_mono() + READY_MS * USEC_PER_MS;
    sb->launch = l;
    if (launch_run(l, sb->start_cmd, 0, &ops, &l->start, &err) < 0)
        launch_finish(l, &err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Who came by traffic and waits until the sandbox runs. */
#include "sandbox/life/life.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/sleep.h"
#include "sandbox/object.h"

enum { WAKES_MAX = 1024, WAKE_TIMEOUT_MS = 300 * 1000 };

static const struct actor traffic = {.name = "traffic"};

bool sandbox_can_wake(const struct sandbox *sb)
{
    switch (sb->info.state) {
    case SANDBOX_RUNNING:
    case SANDBOX_RESUMING:
        return true;
    case SANDBOX_PAUSING:
    case SANDBOX_PAUSED:
        return sb->info.auto_resume;
    default:
        return false;
    }
}

static void say_paused(const struct sandbox *sb, struct err *ret_err)
{
    (void)err_set(ret_err, ERR_FAILED_PRECONDITION, "sandbox %s is %s", sb->info.id,
                  sandbox_state_name(sb->info.state));
}

static int resume(struct sandbox *sb, const struct actor *actor, struct err *err)
{
    uint64_t seq, timeout_ms = sb->info.timeout_ms;
    if (!sb->info.auto_resume) {
        say_paused(sb, err);
        return -1;
    }
    if (timeout_ms)
        timeout_ms = MIN(MAX(timeout_ms, (uint64_t)WAKE_TIMEOUT_MS), sb->core->config.max_timeout_ms);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_BOOL("traffic", true), DATA_U64("timeout_ms", timeout_ms));
    if (resume_limit(sb->core, err) < 0 ||
        action_permit(sb, actor, EVENT_SANDBOX_RESUME, event_data_end(&d), &seq, err) < 0)
        return -1;
    resume_begin(sb, timeout_ms, false, seq);
    return 0;
}

static void tell_all(struct sandbox *sb, const struct err *err)
{
    struct list now = LIST_INIT(now);
    while (!list_empty(&sb->wakes)) {
        struct list *it = sb->wakes.next;
        list_remove(it);
        list_append(&now, it);
    }
    struct sandbox_wake *w;
    while ((w = LIST_FIRST(struct sandbox_wake, &now, node))) {
        list_remove(&w->node);
        w->fn(w, sb, err);
    }
}

static void wake_on_job(struct loop_job *job)
{
    struct sandbox *sb = container_of(job, struct sandbox, wake_job);
    struct err err;
    if (sandbox_state_is_over(sb->info.state)) {
        (void)err_set(&err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
        tell_all(sb, &err);
    } else if (sb->info.state == SANDBOX_RUNNING) {
        tell_all(sb, NULL);
    } else if (sb->info.state == SANDBOX_PAUSED && !list_empty(&sb->wakes)) {
        /* It was being paused when they came, or could not be resumed. */
        if (sb->wake_err.code)
            err = sb->wake_err;
        if (sb->wake_err.code || resume(sb, &traffic, &err) < 0)
            tell_all(sb, &err);
    }
    sandbox_unref(sb);
}

void wake_init(struct sandbox *sb)
{
    list_init(&sb->wakes);
    loop_job_init(&sb->wake_job, wake_on_job);
}

void wake_later(struct sandbox *sb)
{
    if (!list_empty(&sb->wakes) && list_empty(&sb->wake_job.node) && !sb->core->closing)
        loop_later(sandbox_ref(sb)->core->loop, &sb->wake_job);
}

void wake_drop(struct sandbox *sb)
{
    struct err why;
    (void)err_set(&why, ERR_UNAVAILABLE, "the service is stopping");
    tell_all(sb, &why);
    if (!list_empty(&sb->wake_job.node)) {
        loop_job_cancel(&sb->wake_job);
        sandbox_unref(sb);
    }
}

int sandbox_wake(struct sandbox *sb, const struct actor *actor, struct sandbox_wake *w, struct err *err)
{
    size_t n = 0;
    LIST_FOREACH (struct sandbox_wake, other, &sb->wakes, node) {
        (void)other;
        n++;
    }
    if (sandbox_state_is_over(sb->info.state))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (sb->core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (n >= WAKES_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "%d requests are already waiting for sandbox %s", WAKES_MAX,
                       sb->info.id);
    if (!sandbox_can_wake(sb)) {
        say_paused(sb, err);
        return -1;
    }
    if (sb->info.state == SANDBOX_PAUSED && resume(sb, actor, err) < 0)
        return -1;
    list_append(&sb->wakes, &w->node);
    if (sb->info.state == SANDBOX_RUNNING || sb->info.state == SANDBOX_PAUSED)
        wake_later(sb);
    return 0;
}

void sandbox_unwake(struct sandbox_wake *w)
{
    list_remove(&w->node);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines. A deadline is a point of real time in the store. Alarms run on the monotonic clock, so it is looked at
 * again at least every END_CHECK_MS: a step of the real clock moves the end by at most that. Only a running sandbox has
 * one that counts.
 */
#include "config/units.h"
#include "sandbox/life/life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

enum { END_CHECK_MS = 30000 };

/* A pause at the deadline that failed is tried again, a while later; an end needs no such thing. */
static usec_t not_before(const struct sandbox *sb)
{
    return sb->info.pause_on_timeout ? sb->end_retry : 0;
}

static void on_end_alarm(struct loop_alarm *alarm)
{
    struct sandbox *sb = container_of(alarm, struct sandbox, end_alarm);
    if (clock_real() < sb->info.end_at || clock_mono() < not_before(sb)) {
        sandbox_arm_end(sb);
        return;
    }
    if (sb->info.pause_on_timeout && sb->info.state == SANDBOX_RUNNING && !start_is_under_way(sb)) {
        pause_expired(sb);
        return;
    }
    sandbox_end(sb, &(struct ending){.kind = EVENT_SANDBOX_EXPIRED,
                                     .grade = EVENT_OBSERVED_HOST,
                                     .actor = STR("timer"),
                                     .cause = "timeout"});
    keeper_wrote(sb->core->keeper);
}

void sandbox_arm_end(struct sandbox *sb)
{
    if (!sb->info.end_at) {
        loop_alarm_clear(sb->core->loop, &sb->end_alarm);
        return;
    }
    usec_t now = clock_real();
    usec_t left = sb->info.end_at > now ? sb->info.end_at - now : 0;
    usec_t at = clock_mono() + MIN(left, END_CHECK_MS * USEC_PER_MS);
    loop_alarm_set(sb->core->loop, &sb->end_alarm, MAX(at, not_before(sb)), on_end_alarm);
}

int deadline_check(const struct core *core, uint64_t timeout_ms, struct err *err)
{
    char most[UNIT_TEXT_MAX];
    if (timeout_ms <= core->config.max_timeout_ms)
        return 0;
    unit_format_duration(core->config.max_timeout_ms, most);
    return err_set(err, ERR_INVALID_ARGUMENT, "the timeout is longer than %s", most);
}

int sandbox_set_timeout(struct sandbox *sb, const struct actor *actor, uint64_t timeout_ms, bool extend_only,
                        struct err *err)
{
    struct sandbox_info *i = &sb->info;
    uint64_t seq;
    bool is_never = timeout_ms == UINT64_MAX;
    if (!is_never && deadline_check(sb->core, timeout_ms, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    if (!is_never)
        event_data_u64(&d, "timeout_ms", timeout_ms);
    event_data_bool(&d, "extend_only", extend_only);
    if (action_begin(sb, actor, EVENT_SANDBOX_TIMEOUT, event_data_end(&d), &seq, err) < 0)
        return -1;
    usec_t end_at = is_never ? 0 : clock_real() + timeout_ms * USEC_PER_MS;
    if (extend_only && (!i->end_at || (!is_never && i->end_at >= end_at)))
        return 0;
    struct sandbox_info before = *i;
    i->end_at = end_at;
    sb->end_retry = 0;
    sb->end_stuck = 0;
    if (timeout_ms) /* "at once" is no time to be resumed for */
        i->timeout_ms = is_never ? 0 : timeout_ms;
    rows_end_at(sb);
    /* What a client was told survives us. */
    if (keeper_commit(sb->core->keeper, err) < 0) {
        i->end_at = before.end_at;
        i->timeout_ms = before.timeout_ms;
        return err_prefix(err, "set the timeout");
    }
    sandbox_arm_end(sb);
    return 0;
}

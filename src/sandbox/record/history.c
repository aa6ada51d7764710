/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of a sandbox that lives is bounded: of more than `keep_events` the oldest go, with a log.pruned in their
 * place, and with them the output that they name. What a later worker must know of processes that began there and run
 * still is recorded once more before (exec_carry(), in the same batch of the store or an earlier one). It goes in
 * bounded steps with a pause after each, so that requests never wait for it.
 */
#include "sandbox/exec/exec_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "store/artefact.h"

enum { SLACK = 2000, HISTORY_STEP_MS = 5 };

static void history_on_alarm(struct loop_alarm *alarm)
{
    struct sandbox *sb = container_of(alarm, struct sandbox, history_alarm);
    struct err err;
    int more = event_prune(sb->core->config.events, sb->info.id, sb->history_from, &err);
    if (more == 0)
        more = artefact_forget(sb->core->config.artefacts, sb->info.id, sb->history_from, &err);
    if (more < 0)
        core_unrecorded(sb->core, &err);
    keeper_wrote(sb->core->keeper);
    if (more > 0)
        loop_alarm_set(sb->core->loop, alarm, clock_mono() + HISTORY_STEP_MS * USEC_PER_MS, history_on_alarm);
}

void history_look(struct sandbox *sb)
{
    const struct core_config *c = &sb->core->config;
    uint32_t keep = c->keep_events ? c->keep_events : CORE_KEEP_EVENTS;
    struct event_bounds there;
    struct err err;
    if (sb->history_alarm.slot || sb->info.state != SANDBOX_RUNNING || sb->taking_over ||
        event_bounds_get(c->events, sb->info.id, &there, &err) < 0 || there.last < there.first + keep + SLACK)
        return;
    sb->history_from = there.last - keep + 1;
    exec_carry(sb, sb->history_from, there.last);
    history_on_alarm(&sb->history_alarm);
}

void history_stop(struct sandbox *sb)
{
    loop_alarm_clear(sb->core->loop, &sb->history_alarm);
}

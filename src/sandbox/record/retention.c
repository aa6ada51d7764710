/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ended sandboxes leave in the store, and volumes that were dropped, is bounded in age and in number. One too many
 * is the oldest of the tenant that has most: nobody can push others' records out. It is taken away in bounded steps
 * (events, artefacts, at last the row: a worker that dies in between finds it again), with a pause after each, so that
 * requests never wait for it. What led to it in the feed goes then, too.
 */
#include "base/log.h"
#include "base/mem.h"
#include "event/feed.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "store/artefact.h"
#include "store/store.h"
#include "store/volume_rows.h"

enum { RETENTION_LOOK_MS = 60000, FIRST_LOOK_MS = 1000, RETENTION_STEP_MS = 5 };
#define KEEP_DEFAULT_MS (CORE_KEEP_ENDED_DAYS * 24ULL * 3600 * 1000)

struct retention {
    struct core *core;
    struct loop_alarm alarm;
    char id[EVENT_ID_MAX + 1]; /* that is being taken away; "": none */
};

static void note_volume(void *ctx, const char *id)
{
    struct retention *r = ctx;
    (void)snprintf(r->id, sizeof(r->id), "%s", id);
}

static bool note_id(const struct store_sandbox *row, void *ctx)
{
    struct retention *r = ctx;
    (void)snprintf(r->id, sizeof(r->id), "%s", row->id);
    return false;
}

/* Finds one that is too old or one too many. */
static int retention_look(struct retention *r, struct err *err)
{
    const struct core_config *c = &r->core->config;
    const usec_t keep_usec = (c->keep_ended_ms ? c->keep_ended_ms : KEEP_DEFAULT_MS) * USEC_PER_MS, now = clock_real();
    const usec_t before = now > keep_usec ? now - keep_usec : 0;
    const size_t most = c->keep_ended ? c->keep_ended : CORE_KEEP_ENDED;
    if (sandbox_rows_each_expired(c->store, before, 1, note_id, r, err) < 0 ||
        (!r->id[0] && sandbox_rows_each_surplus(c->store, most, note_id, r, err) < 0))
        return -1;
    return r->id[0] ? 0 : volume_rows_log_expired(c->store, before, note_volume, r, err);
}

/* 1: there is more of it. */
static int take_away(struct retention *r, struct err *err)
{
    const struct core_config *c = &r->core->config;
    int more = event_erase(c->events, r->id, err);
    if (more == 0)
        more = artefact_forget(c->artefacts, r->id, UINT64_MAX, err);
    if (more == 0)
        more = sandbox_rows_delete(c->store, r->id, err) < 0 ? -1 : owner_rows_delete(c->store, r->id, err);
    return more;
}

static void retention_on_alarm(struct loop_alarm *alarm)
{
    struct retention *r = container_of(alarm, struct retention, alarm);
    struct err err;
    int more = 0;
    if (r->id[0] || retention_look(r, &err) == 0)
        more = r->id[0] ? take_away(r, &err) : 0;
    else
        more = -1;
    bool sweeps = more == 0 && artefact_sweep(r->core->config.artefacts, &err) > 0;
    if (more >= 0 && feed_sweep(r->core->config.events, &err) < 0)
        more = -1;
    keeper_wrote(r->core->keeper);
    if (more < 0)
        log_warn("forget a sandbox that ended long ago: %s", err.msg);
    bool goes_on = (r->id[0] || sweeps) && more >= 0;
    if (more <= 0)
        r->id[0] = 0;
    loop_alarm_set(r->core->loop, alarm, clock_mono() + (goes_on ? RETENTION_STEP_MS : RETENTION_LOOK_MS) * USEC_PER_MS,
                   retention_on_alarm);
}

struct retention *retention_new(struct core *core)
{
    struct retention *r = mem_new(struct retention);
    r->core = core;
    loop_alarm_set(core->loop, &r->alarm, clock_mono() + FIRST_LOOK_MS * USEC_PER_MS, retention_on_alarm);
    return r;
}

void retention_free(struct retention *r)
{
    if (!r)
        return;
    loop_alarm_clear(r->core->loop, &r->alarm);
    mem_free(r);
}

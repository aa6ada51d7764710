/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the store going: ends its batches (after the turn that wrote an action, so that nobody hears what came of one
 * that is not stored; for observations soon, at most every COMMIT_MS; and never before what the turn had to send was
 * sent), lets suppressed floods be recorded, and folds the write-ahead log back in a worker thread: when it is long,
 * and soon after something was stored without which files in the pool are nobody's. Nothing else syncs the log: without
 * that, a power cut could take such rows for as long as the kernel leaves the log in memory, half a minute, and the
 * files of a snapshot would then be garbage. When the disk is full, actions that free room are written into the ballast
 * (store/ballast.h); until such a loan is over, the store counts as full.
 */
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "store/ballast.h"
#include "store/store.h"

enum { COMMIT_MS = 2, FLOOD_MS = 1000, WAL_PAGES_MAX = 4000, SETTLE_MS = 200 };

struct record_keeper {
    struct core *core; /* NULL after keeper_free() while a checkpoint runs */
    struct loop_job sent, commit;
    struct loop_alarm commit_alarm, flood_alarm, settle_alarm;
    usec_t last_commit;
    bool checkpointing;
    uv_work_t work;
    struct ballast *ballast;
    char *path;
    struct err checkpoint_err;
    int checkpoint_result;
    bool fails;   /* the last batch was lost */
    bool hurries; /* the batch holds an action */
};

static void keeper_on_checkpoint(uv_work_t *work)
{
    struct record_keeper *k = work->data;
    k->checkpoint_result = store_checkpoint(k->path, &k->checkpoint_err);
}

static void keeper_mem_free(struct record_keeper *k)
{
    MEM_FREE(k->path, k);
}

static void after_checkpoint(uv_work_t *work, int status UNUSED)
{
    struct record_keeper *k = work->data;
    k->checkpointing = false;
    if (!k->core)
        keeper_mem_free(k);
    else if (k->checkpoint_result < 0)
        log_warn("checkpoint of the store: %s", k->checkpoint_err.msg);
}

static void keeper_fold(struct record_keeper *k)
{
    if (!k->checkpointing)
        k->checkpointing = uv_queue_work(loop_uv(k->core->loop), &k->work, keeper_on_checkpoint, after_checkpoint) == 0;
}

static void on_settle_alarm(struct loop_alarm *alarm)
{
    struct record_keeper *k = container_of(alarm, struct record_keeper, settle_alarm);
    bool is_under_way = k->checkpointing; /* it may have begun too early */
    keeper_fold(k);
    if (is_under_way)
        keeper_settle(k);
}

void keeper_settle(struct record_keeper *k)
{
    if (!k->settle_alarm.slot)
        loop_alarm_set(k->core->loop, &k->settle_alarm, clock_mono() + SETTLE_MS * USEC_PER_MS, on_settle_alarm);
}

int keeper_commit(struct record_keeper *k, struct err *err)
{
    struct store *store = k->core->config.store;
    bool is_pending = store_pending(store);
    k->last_commit = clock_mono();
    k->hurries = false;
    if (store_commit(store, err) < 0) {
        if (!k->fails)
            log_error("the store: %s", err->msg);
        k->fails = true;
        return -1;
    }
    if (k->fails && is_pending && !ballast_is_lent(k->ballast)) {
        log_info("the store takes writes again");
        k->fails = false;
    }
    if (store_wal_pages(store) > WAL_PAGES_MAX)
        keeper_fold(k);
    return 0;
}

bool keeper_fails(const struct record_keeper *k)
{
    return k->fails;
}

bool keeper_lend(struct record_keeper *k)
{
    return ballast_lend(k->ballast);
}

bool keeper_is_lending(const struct record_keeper *k)
{
    return ballast_is_lent(k->ballast);
}

void core_flush(struct core *core)
{
    struct err err;
    if (!store_pending(core->config.store))
        return;
    if (keeper_commit(core->keeper, &err) < 0)
        core->unrecorded++;
}

static void on_commit_alarm(struct loop_alarm *alarm)
{
    core_flush(container_of(alarm, struct record_keeper, commit_alarm)->core);
}

static void on_commit_job(struct loop_job *job)
{
    struct record_keeper *k = container_of(job, struct record_keeper, commit);
    usec_t due = k->last_commit + COMMIT_MS * USEC_PER_MS;
    if (k->hurries || clock_mono() >= due)
        core_flush(k->core);
    else if (!k->commit_alarm.slot)
        loop_alarm_set(k->core->loop, &k->commit_alarm, due, on_commit_alarm);
}

static void on_sent_job(struct loop_job *job)
{
    struct record_keeper *k = container_of(job, struct record_keeper, sent);
    loop_later(k->core->loop, &k->commit);
}

static void on_flood_alarm(struct loop_alarm *alarm)
{
    struct record_keeper *k = container_of(alarm, struct record_keeper, flood_alarm);
    struct err err;
    ballast_tick(k->ballast);
    if (event_flush_suppressed(k->core->config.events, &err) < 0)
        core_unrecorded(k->core, &err);
    ends_write(k->core);
    keeper_wrote(k);
    loop_alarm_set(k->core->loop, &k->flood_alarm, clock_mono() + FLOOD_MS * USEC_PER_MS, on_flood_alarm);
}

void keeper_wrote(struct record_keeper *k)
{
    loop_before_sleep(k->core->loop, &k->sent);
}

void keeper_acts(struct record_keeper *k)
{
    k->hurries = true;
    keeper_wrote(k);
}

struct record_keeper *keeper_new(struct core *core)
{
    struct record_keeper *k = mem_new(struct record_keeper);
    k->core = core;
    k->work.data = k;
    k->path = mem_strdup(store_path(core->config.store));
    k->ballast = ballast_open(k->path);
    loop_job_init(&k->sent, on_sent_job);
    loop_job_init(&k->commit, on_commit_job);
    loop_alarm_set(core->loop, &k->flood_alarm, clock_mono() + FLOOD_MS * USEC_PER_MS, on_flood_alarm);
    return k;
}

void keeper_free(struct record_keeper *k)
{
    if (!k)
        return;
    core_flush(k->core);
    ends_write(k->core);
    core_flush(k->core);
    loop_job_cancel(&k->sent);
    loop_job_cancel(&k->commit);
    loop_alarm_clear(k->core->loop, &k->commit_alarm);
    loop_alarm_clear(k->core->loop, &k->flood_alarm);
    loop_alarm_clear(k->core->loop, &k->settle_alarm);
    ballast_close(k->ballast);
    k->core = NULL;
    if (!k->checkpointing)
        keeper_mem_free(k);
}

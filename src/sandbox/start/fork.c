/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks: one clone of the files, then sandboxes on it, a few at a time so that others' requests come in between. A
 * clone
 * waits for a commit of the file system: while the files are still those of the last fork's, that one is used again.
 */
#include "base/fault.h"
#include "base/mem.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/life/store.h"
#include "sandbox/object.h"
#include "sandbox/start/make.h"

enum { FORK_AT_A_TIME = 16 };

struct forking {
    struct sandbox *sb; /* a reference */
    char layer[LAYER_NAME_LEN + 1];
    char unlike[LAYER_NAME_LEN + 1]; /* of a fork before; "": a new one is made in any case */
    char actor_name[EVENT_ACTOR_MAX + 1];
    uint64_t seq, timeout_ms;
    size_t count, begun, under_way, failed;
    bool memory;
    bool starts;         /* more of them: what fails at once does not come back here */
    struct loop_job job; /* of one that begins with a checkpoint */
    fork_fn done;
    void *ctx;
};

struct fork_of_one {
    struct forking *f;
    size_t i;
};

static void more(struct forking *f);

static void fork_tell(struct forking *f, size_t i, struct sandbox *fork, const struct err *err)
{
    f->failed += err != NULL;
    f->done(f->ctx, i, fork, err);
}

static void fork_finish(struct forking *f)
{
    struct sandbox *sb = f->sb;
    if (!sb->core->closing && sb->info.state != SANDBOX_ENDED && sb->info.state != SANDBOX_FAILED) {
        AUTO_EVENT_DATA struct event_data d =
            EVENT_DATA(DATA_U64("count", f->count - f->failed), DATA_COUNT("failed", f->failed));
        action_observe(sb, f->seq, EVENT_SANDBOX_FORKED, EVENT_OBSERVED_HOST, event_data_end(&d));
    }
    if (!sb->core->closing)
        (--sb->n_forking ? layers_fresh : layers_settled)(sb->core, f->layer); /* another one may be about to use it */
    f->done(f->ctx, f->count, NULL, NULL);
    sandbox_unref(sb);
    mem_free(f);
}

static void fork_on_made(void *ctx, struct sandbox *fork, const struct err *err)
{
    struct fork_of_one one = *(struct fork_of_one *)ctx;
    mem_free(ctx);
    one.f->under_way--;
    fault_point("core.fork.made");
    fork_tell(one.f, one.i, fork, err);
    more(one.f);
}

static int fork_begin(struct forking *f, size_t i, struct err *err)
{
    struct core *core = f->sb->core;
    const struct actor actor = {.name = f->actor_name, .is_own = true};
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (resume_limit(core, err) < 0)
        return -1;
    const struct sandbox_info *of = &f->sb->info;
    struct charge charge;
    if (charge_sandbox(&charge, core, of->tenant, of->memory_bytes, of->cpu_milli, of->disk_bytes, err) < 0)
        return -1;
    struct fork_of_one *one = mem_new(struct fork_of_one);
    *one = (struct fork_of_one){f, i};
    struct sandbox *fork = make_fork(f->sb, f->layer, f->timeout_ms);
    fork->charge = charge;
    fork->goes_on = f->memory;
    if (create_begin(fork, &actor, f->sb->info.id, fork_on_made, one, err) == 0)
        return 0;
    mem_free(one);
    return -1;
}

static void more(struct forking *f)
{
    struct err err;
    if (f->starts)
        return;
    f->starts = true;
    while (f->begun < f->count && f->under_way < FORK_AT_A_TIME) {
        size_t i = f->begun++;
        if (fork_begin(f, i, &err) < 0)
            fork_tell(f, i, NULL, &err);
        else
            f->under_way++;
    }
    f->starts = false;
    if (f->begun == f->count && !f->under_way)
        fork_finish(f);
}

static void fork_on_files(void *ctx, const struct sup_stored *stored, const struct err *err)
{
    struct forking *f = ctx;
    fault_point("core.fork.stored");
    bool is_unchanged = stored && stored->is_unchanged;
    if (is_unchanged)
        memcpy(f->layer, f->unlike, sizeof(f->layer));
    else if (stored && !f->memory)
        memcpy(f->sb->fork_layer, f->layer, sizeof(f->layer));
    if (f->unlike[0] && !is_unchanged && f->sb->n_forking == 1)
        layers_settled(f->sb->core, f->unlike);
    if (!err) {
        more(f);
        return;
    }
    for (; f->begun < f->count; f->begun++)
        fork_tell(f, f->begun, NULL, err);
    fork_finish(f);
}

static void fork_on_checkpoint(struct loop_job *job)
{
    fork_on_files(container_of(job, struct forking, job), NULL, NULL);
}

/* of: where it is to be from; NULL: as it is. */
static int fork_ask(struct sandbox *sb, const struct actor *actor, const struct checkpoint *of, bool memory,
                    size_t count, uint64_t timeout_ms, fork_fn done, void *ctx, struct err *err)
{
    uint64_t seq;
    if (!count || count > FORKS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "1 to %d forks can be made at a time", FORKS_MAX);
    if (timeout_ms == UINT64_MAX)
        timeout_ms = sb->info.timeout_ms;
    if (deadline_check(sb->core, timeout_ms, err) < 0)
        return -1;
    if (store_permitted(sb, err) < 0 || (memory && store_memory_permitted(sb, err) < 0) ||
        resume_limit(sb->core, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("count", count));
    if (of)
        event_data_u64(&d, "checkpoint", of->seq);
    EVENT_DATA_PUT(&d, DATA_FLAG("memory", memory));
    if (action_permit(sb, actor, EVENT_SANDBOX_FORK, event_data_end(&d), &seq, err) < 0)
        return -1;
    struct forking *f = mem_new(struct forking);
    *f = (struct forking){.sb = sandbox_ref(sb),
                          .memory = memory,
                          .seq = seq,
                          .timeout_ms = timeout_ms,
                          .count = count,
                          .done = done,
                          .ctx = ctx};
    (void)snprintf(f->actor_name, sizeof(f->actor_name), "%s", actor->name);
    sb->n_forking++;
    if (of) {
        memcpy(f->layer, of->layer, sizeof(f->layer));
        layers_making(sb->core, f->layer); /* is not dropped meanwhile */
        loop_job_init(&f->job, fork_on_checkpoint);
        loop_later(sb->core->loop, &f->job);
        return 0;
    }
    layer_name_new(f->layer);
    if (sb->fork_layer[0] && !memory) {
        memcpy(f->unlike, sb->fork_layer, sizeof(f->unlike));
        layers_fresh(sb->core, f->unlike);
    }
    const struct store_what what = {EVENT_SANDBOX_SNAPSHOTTED, seq, memory, .passes = true,
                                    .unlike = f->unlike[0] ? f->unlike : NULL};
    if (store_files(sb, f->layer, &what, fork_on_files, f, err) == 0)
        return 0;
    sb->n_forking--;
    sandbox_unref(sb);
    mem_free(f);
    return -1;
}

int sandbox_fork(struct sandbox *sb, const struct actor *actor, bool memory, size_t count, uint64_t timeout_ms,
                 fork_fn done, void *ctx, struct err *err)
{
    return fork_ask(sb, actor, NULL, memory, count, timeout_ms, done, ctx, err);
}

int sandbox_fork_at(struct sandbox *sb, const struct actor *actor, uint64_t seq, size_t count, uint64_t timeout_ms,
                    fork_fn done, void *ctx, struct err *err)
{
    const struct checkpoint *of = checkpoint_find(sb, seq);
    if (!of)
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has no checkpoint at or before event %llu", sb->info.id,
                       (unsigned long long)seq);
    return fork_ask(sb, actor, of, false, count, timeout_ms, done, ctx, err);
}

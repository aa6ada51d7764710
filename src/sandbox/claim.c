/* SPDX-License-Identifier: Apache-2.0 */
/* A spare becomes somebody's: rule 3 of spare.c. */
#include "base/mem.h"
#include "sandbox/internal.h"

static void on_claimed(struct loop_job *job)
{
    struct sandbox *sb = container_of(job, struct sandbox, claim_job);
    if (!sandbox_state_is_over(sb->info.state))
        sandbox_on_network(sb, NULL);
    sandbox_unref(sb);
}

static int record(struct sandbox *sb, const struct actor *actor, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    AUTO_EVENT_DATA struct event_data started = EVENT_DATA_INIT;
    make_describe(sb, &d);
    event_data_bool(&d, "spare", true);
    if (rows_replace(sb, err) < 0 ||
        action_permit(sb, actor, EVENT_SANDBOX_CREATE, event_data_end(&d), &sb->create_seq, err) < 0)
        return -1;
    event_data_u64(&started, "ms", 0);
    action_observe(sb, sb->create_seq, EVENT_SANDBOX_STARTED, EVENT_OBSERVED_HOST, event_data_end(&started));
    return 0;
}

int claim_begin(struct sandbox *sb, const struct actor *actor, const struct template *t, const char *alias,
                const struct sandbox_spec *spec, sandbox_fn done, void *ctx, struct err *err)
{
    struct sandbox_info *i = &sb->info;
    bool is_plain = !spec->network && spec->allow_internet && network_is_plain(sb);
    make_own(sb, t, alias, spec);
    i->started = clock_real();
    i->timeout_ms = spec->timeout_ms;
    i->end_at = spec->timeout_ms ? i->started + spec->timeout_ms * USEC_PER_MS : 0;
    sb->n_samples = 0;
    sb->stored = sb->is_told = false;
    if (!is_plain)
        network_replace(sb, spec);
    if (record(sb, actor, err) < 0 || (!is_plain && network_begin(sb, actor, err) < 0)) {
        sandbox_end(sb, &(struct ending){.seq = sb->create_seq, .cause = "failed", .fails = true, .what = err->msg});
        return -1;
    }
    sb->create_done = done;
    sb->create_ctx = ctx;
    sandbox_enlist(sb);
    sandbox_arm_end(sb);
    if (!network_is_pending(sb)) {
        loop_job_init(&sb->claim_job, on_claimed);
        loop_later(sandbox_ref(sb)->core->loop, &sb->claim_job);
    }
    return 0;
}

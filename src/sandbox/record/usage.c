/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of running sandboxes, every SANDBOX_SAMPLE_MS: memory, CPU and what it wrote to its disk from coved (measured
 * from outside; the last only where the pool counts), the disk's otherwise from the agent (a claim, refreshed beside,
 * so that a sample never waits for it). The first one of each sandbox comes at a random moment, which spreads them out.
 * A limit may be reached for less than that: it is looked at as well, at most every SUSPECT_MS, when a process fails or
 * an operation on a file ends for want of something. What was told is in the row, so that another worker does not tell
 * it again.
 */
#include "base/mem.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

struct sampling {
    struct sandbox *sb;     /* holds a reference */
    sandbox_sample_fn done; /* NULL: the regular one, which is kept */
    void *ctx;
};

/* Every second one goes of all but the latest quarter, so that what is long ago is told in longer steps. */
static void thin(struct sandbox *sb)
{
    size_t n = 0, older = sb->n_samples - sb->n_samples / 4;
    for (size_t i = 0; i < sb->n_samples; i++)
        if (i >= older || i % 2 == 0)
            sb->samples[n++] = sb->samples[i];
    sb->n_samples = n;
}

static void usage_keep(struct sandbox *sb, const struct sandbox_sample *sample)
{
    size_t share = SANDBOX_SAMPLES_ALL / MAX(sb->core->n_live, (size_t)1);
    size_t most = MIN(MAX(share, (size_t)SANDBOX_SAMPLES_LEAST), (size_t)SANDBOX_SAMPLES_MAX);
    while (sb->n_samples >= most)
        thin(sb);
    if (sb->n_samples == sb->cap_samples || sb->cap_samples > most) {
        sb->cap_samples = MIN(most, MAX((size_t)16, sb->n_samples * 2));
        sb->samples = mem_realloc(sb->samples, sb->cap_samples * sizeof(*sb->samples));
    }
    sb->samples[sb->n_samples++] = *sample;
}

/* Once when it is full, and again only after there was some room. What it wrote last did not fit, so it stays below the
 * limit. */
static void look_at_disk(struct sandbox *sb, const struct sup_used *u)
{
    uint64_t limit = u->disk_limit_bytes, used = u->disk_bytes;
    if (!limit || !used)
        return;
    if (used < limit - limit / 10) {
        if (sb->disk_is_full) {
            sb->disk_is_full = false;
            rows_extra(sb);
        }
    } else if (!sb->disk_is_full && used >= limit - MIN(limit / 50, (uint64_t)16 << 20)) {
        sb->disk_is_full = true;
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("used_bytes", used), DATA_U64("limit_bytes", limit));
        action_observe(sb, 0, EVENT_LIMIT_DISK, EVENT_OBSERVED_KERNEL, event_data_end(&d));
        rows_extra(sb);
    }
}

/* Once when it may have no more, and again only after a whole period in which it did not try. */
static void look_at_pids(struct sandbox *sb, const struct sup_used *u, bool is_regular)
{
    if (u->pids_refused > sb->pids_refused) {
        sb->pids_refused = u->pids_refused;
        sb->pids_grew = true;
        if (!sb->pids_are_short) {
            AUTO_EVENT_DATA struct event_data d =
                EVENT_DATA(DATA_U64("limit", u->pids_limit), DATA_U64("refused", sb->pids_refused - sb->pids_told));
            action_observe(sb, 0, EVENT_LIMIT_PIDS, EVENT_OBSERVED_KERNEL, event_data_end(&d));
            sb->pids_told = sb->pids_refused;
            sb->pids_are_short = true;
            rows_extra(sb);
        }
    }
    if (!is_regular)
        return;
    if (!sb->pids_grew && sb->pids_are_short) {
        sb->pids_are_short = false;
        rows_extra(sb);
    }
    sb->pids_grew = false;
}

static void look_at_kills(struct sandbox *sb, const struct sup_used *u)
{
    if (u->oom_kills <= sb->oom_kills)
        return;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("kills", u->oom_kills - sb->oom_kills));
    sb->oom_kills = u->oom_kills;
    action_observe(sb, 0, EVENT_LIMIT_OOM, EVENT_OBSERVED_KERNEL, event_data_end(&d));
    rows_extra(sb);
}

static void on_used(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct sampling *s = ctx;
    struct sandbox *sb = s->sb;
    if (answer && !sandbox_state_is_over(sb->info.state)) {
        const struct sup_used *u = &answer->used;
        usec_t now = clock_mono();
        uint32_t cpus = MAX((sb->info.cpu_milli + 999) / 1000, 1u);
        struct sandbox_sample sample = {
            .at = clock_real(),
            .cpu_count = cpus,
            .memory_used = u->memory_bytes,
            .memory_total = u->memory_limit_bytes ? u->memory_limit_bytes : sb->info.memory_bytes,
            .memory_cache = u->cache_bytes,
            .disk_used = u->disk_bytes ? u->disk_bytes : sb->disk_used,
            .disk_total = u->disk_limit_bytes ? u->disk_limit_bytes : sb->disk_total,
            .disk_is_counted = u->disk_bytes != 0,
            .disk_is_limited = u->disk_limit_bytes != 0,
        };
        usec_t since = sb->cpu_at ? sb->cpu_at : now - MIN(now, clock_real() - MIN(clock_real(), sb->info.started));
        uint64_t used = u->cpu_usec > sb->cpu_usec ? u->cpu_usec - sb->cpu_usec : 0;
        if (now > since)
            sample.cpu_used_pct = 100.0 * (double)used / (double)(now - since) / cpus;
        if (!s->done) {
            sb->cpu_usec = u->cpu_usec;
            sb->cpu_at = now;
            usage_keep(sb, &sample);
        }
        look_at_disk(sb, u);
        look_at_pids(sb, u, !s->done);
        look_at_kills(sb, u);
        if (s->done)
            s->done(s->ctx, &sample, NULL);
    } else if (s->done) {
        struct err ended;
        (void)err_set(&ended, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
        s->done(s->ctx, NULL, err ? err : &ended);
    }
    sandbox_unref(sb);
    mem_free(s);
}

static int usage_ask(struct sandbox *sb, sandbox_sample_fn done, void *ctx, struct err *err)
{
    struct sampling *s = mem_new(struct sampling);
    *s = (struct sampling){sandbox_ref(sb), done, ctx};
    if (supervisor_call_id(sb->core->supervisor, SUP_USAGE, sb->info.id, on_used, s, err) == 0)
        return 0;
    sandbox_unref(sb);
    mem_free(s);
    return -1;
}

int sandbox_sample_now(struct sandbox *sb, sandbox_sample_fn done, void *ctx, struct err *err)
{
    if (sandbox_usable(sb, err) < 0)
        return -1;
    return usage_ask(sb, done, ctx, err);
}

enum { FIRST_DISK_MS = 50, SUSPECT_MS = 100 };

/* ---- the disk: the stream's user is the sandbox, which outlives its session ---- */

static void on_disk(void *user, struct str tail, const struct err *err)
{
    struct sandbox *sb = user;
    struct wire_reader r = wire_reader_of(tail);
    uint64_t total = wire_get_u64(&r), used = wire_get_u64(&r);
    (void)wire_get_u32(&r);
    if (err || !wire_done(&r) || used > total) {
        sandbox_unref(sb);
        return;
    }
    sb->disk_total = total;
    sb->disk_used = used;
    sandbox_unref(sb);
}

static const struct stream_ops disk_ops = {.on_end = on_disk};

static void ask_disk(struct sandbox *sb)
{
    struct stream *st;
    struct err err;
    if (!sb->session)
        return;
    sandbox_ref(sb);
    if (stream_open(sb->session, session_request(sb->session, WIRE_USAGE), &disk_ops, sb, SESSION_UNARY_MS, &st, &err) <
        0)
        sandbox_unref(sb);
}

static void on_sample_alarm(struct loop_alarm *alarm)
{
    struct sandbox *sb = container_of(alarm, struct sandbox, sample_alarm);
    struct err err;
    ask_disk(sb);
    if (!sb->disk_asked) {
        sb->disk_asked = true;
        loop_alarm_set(sb->core->loop, alarm, clock_mono() + FIRST_DISK_MS * USEC_PER_MS, on_sample_alarm);
        return;
    }
    (void)!usage_ask(sb, NULL, NULL, &err);
    history_look(sb);
    loop_alarm_set(sb->core->loop, alarm, clock_mono() + SANDBOX_SAMPLE_MS * USEC_PER_MS, on_sample_alarm);
}

/* ---- out of turn ---- */

static void on_suspicion(void *ctx, const struct sandbox_sample *sample, const struct err *err)
{
    (void)ctx, (void)sample, (void)err; /* on_used() has said it */
}

static void on_suspect_alarm(struct loop_alarm *alarm)
{
    struct sandbox *sb = container_of(alarm, struct sandbox, suspect_alarm);
    struct err err;
    sb->suspected_at = clock_mono();
    (void)!usage_ask(sb, on_suspicion, NULL, &err);
}

void usage_suspect(struct sandbox *sb)
{
    if (sb->within)
        sb = sb->within;
    bool is_told = sb->pids_are_short && (!sb->info.disk_bytes || sb->disk_is_full);
    if (is_told || sb->core->closing || sb->info.state != SANDBOX_RUNNING || sb->suspect_alarm.slot)
        return;
    usec_t next = sb->suspected_at ? sb->suspected_at + SUSPECT_MS * USEC_PER_MS : 0;
    if (clock_mono() >= next)
        on_suspect_alarm(&sb->suspect_alarm);
    else
        loop_alarm_set(sb->core->loop, &sb->suspect_alarm, next, on_suspect_alarm);
}

void usage_forget(struct sandbox *sb)
{
    sb->cpu_at = sb->cpu_usec = 0;
    sb->oom_kills = sb->pids_refused = sb->pids_told = 0;
    sb->pids_are_short = sb->pids_grew = false;
}

void usage_stop(struct sandbox *sb)
{
    loop_alarm_clear(sb->core->loop, &sb->sample_alarm);
    loop_alarm_clear(sb->core->loop, &sb->suspect_alarm);
    history_stop(sb);
}

void usage_start(struct sandbox *sb)
{
    uint16_t random;
    id_random_bytes(&random, sizeof(random));
    loop_alarm_set(sb->core->loop, &sb->sample_alarm, clock_mono() + (usec_t)random % SANDBOX_SAMPLE_MS * USEC_PER_MS,
                   on_sample_alarm);
}

const struct sandbox_sample *sandbox_samples(const struct sandbox *sb, size_t *ret_n)
{
    *ret_n = sb->n_samples;
    return sb->samples;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start command is tried as sandboxes will run it: in the context that the steps left, until the ready command
 * succeeds. Without a ready command it is enough that it has not failed for a moment. What it wrote meanwhile is not
 * part of the template, whose files are stored already, unless its memory is stored, too.
 */
#include "build/internal.h"
#include "wire/tiers.h"

enum { SETTLE_MS = 2000, RETRY_FIRST_MS = 50, RETRY_MOST_MS = 2000, LONG_MS = 2000 };

static void finalize_stored(struct build_job *j)
{
    j->has_memory = j->with_memory;
    job_done(j);
}

static const char *ready_cmd(const struct build_job *j)
{
    return j->spec.ready_cmd ? j->spec.ready_cmd : j->spec.start_cmd ? NULL : j->from_ready;
}

/* Some clients have `sleep 20` for a CMD of a Dockerfile, for services whose sandboxes begin behind it. */
static void finalize_warn_slow(struct build_job *j)
{
    uint64_t ms = (clock_mono() + j->b->config.ready_timeout_ms * USEC_PER_MS - j->ready_until) / USEC_PER_MS;
    const char *ready = ready_cmd(j);
    if (!ready || ms < LONG_MS)
        return;
    bool is_sleep = strncmp(ready, "sleep ", 6) == 0;
    job_log(j, TEMPLATE_WARN,
            "[finalize] ready after %.1f s, and so is each sandbox of it. %s'cove warm' keeps some ready",
            (double)ms / 1000,
            is_sleep ? "A ready command that checks, such as 'curl -s localhost:8000', is done sooner than one that "
                       "sleeps; "
                     : "");
}

/* Not within a callback of the session, which is closed while memory is stored. */
static void is_ready(struct build_job *j)
{
    j->retry_at = 0;
    j->is_up = true;
    if (j->with_memory) {
        job_log(j, TEMPLATE_INFO, "[finalize] Storing the memory of what runs: sandboxes go on from here");
        job_store(j, finalize_stored);
        return;
    }
    finalize_warn_slow(j);
    j->stored = (struct build_step_size){.is_known = true};
    job_remember(j);
    job_done(j);
}

static void start_done(struct build_job *j, int code, const struct err *err)
{
    j->start_ended = true;
    if (err)
        job_fail(j, "failed to run the start command: %s: %s", err_code_name(err->code), err->msg);
    else if (code)
        job_fail(j, "the start command failed: exit status %d%s%.300s", code, j->start.output[0] ? ": " : "",
                 j->start.output);
}

static void ready_done(struct build_job *j, int code, const struct err *err)
{
    usec_t now = clock_mono();
    unsigned wait = MIN(RETRY_FIRST_MS << MIN(j->tries, 6U), RETRY_MOST_MS);
    if (!err && code == 0) {
        j->is_up = true;
        j->retry_at = now;
        return;
    }
    if (err && err->code != ERR_DEADLINE_EXCEEDED) {
        job_fail(j, "failed to run the ready command: %s: %s", err_code_name(err->code), err->msg);
        return;
    }
    if (j->tries++ == 0)
        job_log(j, TEMPLATE_DEBUG, "[finalize] not ready yet: exit status %d", code);
    j->retry_at = now + wait * USEC_PER_MS;
}

static void try_ready(struct build_job *j)
{
    uint64_t left = (j->ready_until - clock_mono()) / USEC_PER_MS;
    j->retry_at = 0;
    j->process.done = ready_done;
    j->process.prefix = "ready";
    j->process.level = TEMPLATE_DEBUG;
    j->process.is_quiet = j->tries > 0;
    process_run(&j->process, j,
                &(struct build_command){.shell_text = ready_cmd(j),
                                        .workdir = j->ctx.workdir,
                                        .with_context = true,
                                        .timeout_ms = MAX(MIN(left, (uint64_t)j->b->config.ready_timeout_ms), 1)});
}

static void try_out(struct build_job *j)
{
    usec_t now = clock_mono();
    const char *start = j->spec.start_cmd ? j->spec.start_cmd : j->from_start;
    j->start_ended = false;
    j->tries = 0;
    j->ready_until = now + j->b->config.ready_timeout_ms * USEC_PER_MS;
    if (start) {
        job_log(j, TEMPLATE_INFO, "[finalize] Running start command: %.500s", start);
        j->start.done = start_done;
        j->start.prefix = "start";
        j->start.level = TEMPLATE_INFO;
        process_run(&j->start, j,
                    &(struct build_command){.shell_text = start, .workdir = j->ctx.workdir, .with_context = true});
        if (job_is_over(j))
            return;
    }
    if (ready_cmd(j)) {
        job_log(j, TEMPLATE_INFO, "[finalize] Waiting for template to be ready: %.500s", ready_cmd(j));
        try_ready(j);
    } else {
        j->retry_at = now + SETTLE_MS * USEC_PER_MS;
    }
}

void finalize_tick(struct build_job *j, usec_t now)
{
    if (j->process.follow || !j->retry_at)
        return;
    if (j->is_up) {
        is_ready(j);
    } else if (!ready_cmd(j)) {
        if (now >= j->retry_at || j->start_ended)
            is_ready(j);
    } else if (now >= j->ready_until) {
        job_fail(j, "ready command timed out after %llu s", (unsigned long long)(j->b->config.ready_timeout_ms / 1000));
    } else if (now >= j->retry_at) {
        try_ready(j);
    }
}

/* Whether memory is stored depends on where it is tried, and memory fits only sandboxes of its size. */
static int finalize_tier(struct build_job *j, const char *start, struct err *err)
{
    struct core *core = j->b->config.core;
    const struct template *t;
    struct err ignored;
    if (core_template_find(core, j->actor.who.view, str_of(j->template_ref), &t, err) < 0)
        return -1;
    const char *tier = core_tier(core, t, str_of(j->spec.tier), err);
    if (!tier)
        return -1;
    j->with_memory =
        start && !j->spec.no_memory && tier_list_saves(core_config(core)->engine.tiers, tier, &ignored) == 0;
    j->tier = j->with_memory || j->spec.tier ? tier : arena_strdup(&j->arena, t->tier);
    if (j->with_memory)
        build_key_add(j->key,
                      (struct str[]){STR("memory"), str_of(tier),
                                     str_of(arena_printf(&j->arena, "%llu %u", (unsigned long long)j->memory_bytes,
                                                         j->cpu_milli))},
                      3);
    return 0;
}

void finalize_start(struct build_job *j)
{
    const char *start = j->spec.start_cmd ? j->spec.start_cmd : j->from_start;
    j->phase = PHASE_FINALIZE;
    (void)snprintf(j->step_text, sizeof(j->step_text), "finalize");
    (void)snprintf(j->prefix, sizeof(j->prefix), "finalize");
    struct err err;
    j->retry_at = 0;
    if (finalize_tier(j, start, &err) < 0) {
        job_fail(j, "%s", err.msg);
        return;
    }
    /* One that comes with the template was tried when that was built. */
    if (!j->spec.start_cmd && !j->spec.ready_cmd && !j->with_memory) {
        job_done(j);
        return;
    }
    build_key_add(j->key, (struct str[]){STR("finalize"), str_of(start), str_of(ready_cmd(j))}, 3);
    if (!j->spec.force && job_recall(j)) {
        j->has_memory = j->with_memory;
        job_log(j, TEMPLATE_INFO, "CACHED [finalize] start and ready command");
        job_done(j);
        return;
    }
    if (j->with_memory)
        job_drop_sandbox(j); /* what steps left running has their environment: no sandbox may go on with it */
    job_need_sandbox(j, try_out);
}

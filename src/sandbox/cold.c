/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new start on kept files. As at a creation the network's policy is told while coved makes the box, and it runs when both have answered. What fails
 * leaves it paused: rule 4 of pause.c.
 */
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "sandbox/internal.h"

static void on_kept_again(void *ctx, const union sup_message *answer, int fd, const struct err *err)
{
    struct sandbox *sb = ctx;
    (void)fd_close(fd);
    if (sb->info.state == SANDBOX_RESUMING && !sb->core->closing) {
        struct err why = sb->wake_err;
        if (answer)
            resume_failed(sb, &why);
        else
            sandbox_end(sb, &(struct ending){.seq = sb->pause_seq, .cause = "failed", .fails = true, .what = err->msg});
    }
    sandbox_unref(sb);
}

static void give_up_memory(struct sandbox *sb, supervisor_fn done)
{
    struct err err;
    union sup_message m = {.pause = {.head = {.type = SUP_PAUSE}}};
    memcpy(m.pause.id, sb->info.id, ID_SANDBOX_LEN);
    sandbox_ref(sb);
    if (supervisor_call(sb->core->supervisor, &m, done, sb, &err) < 0)
        pause_answer_later(sb, done, &err);
}

void cold_failed(struct sandbox *sb, const struct err *err)
{
    struct err why = *err;
    if (sb->wake_err.code)
        return; /* it is being put back to sleep already */
    sb->wake_err = why;
    sb->is_ready = false;
    pause_let_go(sb);
    give_up_memory(sb, on_kept_again);
}

void cold_ready(struct sandbox *sb)
{
    if (!sb->wake_err.code)
        sandbox_prepare(sb);
}

static void on_created(void *ctx, const union sup_message *answer, int fd, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct err local;
    fault_point("core.resume.created");
    if (sb->core->closing) {
        (void)fd_close(fd);
    } else if (sb->info.state != SANDBOX_RESUMING) {
        /* It ended meanwhile, and coved may have answered that KILL before it made it. */
        (void)fd_close(fd);
        if (answer && supervisor_call_id(sb->core->supervisor, SUP_KILL, sb->info.id, NULL, NULL, &local) < 0)
            log_warn("kill sandbox %s: %s", sb->info.id, local.msg);
    } else if (!answer && err->code != ERR_DEADLINE_EXCEEDED && !sb->wake_err.code) {
        pause_let_go(sb);
        resume_failed(sb, err); /* its files are where they were */
    } else if (!answer) {
        cold_failed(sb, err);
    } else if (sb->wake_err.code) {
        (void)fd_close(fd); /* and the PAUSE that follows keeps its files */
    } else if (fd < 0) {
        cold_failed(sb, &(struct err){.code = ERR_INTERNAL, .msg = "the supervisor sent no socket"});
    } else {
        sb->session = session_new(sb->core->loop, &sandbox_session_ops, sb);
        if (session_start(sb->session, fd, &local) < 0)
            cold_failed(sb, &local);
    }
    sandbox_unref(sb);
}

static void start(struct sandbox *sb)
{
    struct err err;
    union sup_message m;
    sb->is_ready = false;
    sb->cpu_at = sb->cpu_usec = 0;
    sb->oom_kills = 0;
    if (network_begin_again(sb, &err) < 0) {
        pause_answer_later(sandbox_ref(sb), on_created, &err);
        return;
    }
    fault_point("core.resume.begun");
    create_message(sb, &m);
    memset(m.create.layer, 0, sizeof(m.create.layer));
    m.create.kept = 1;
    sandbox_ref(sb);
    if (supervisor_call(sb->core->supervisor, &m, on_created, sb, &err) < 0)
        pause_answer_later(sb, on_created, &err);
}

static void on_forgotten(void *ctx, const union sup_message *answer, int fd, const struct err *err)
{
    struct sandbox *sb = ctx;
    (void)fd_close(fd);
    if (sb->info.state == SANDBOX_RESUMING && !sb->core->closing) {
        if (answer) {
            pause_let_go(sb);
            sb->info.has_memory = false;
            rows_extra(sb);
            start(sb);
        } else {
            resume_failed(sb, err);
        }
    }
    sandbox_unref(sb);
}

void cold_go(struct sandbox *sb)
{
    if (sb->info.has_memory)
        give_up_memory(sb, on_forgotten);
    else
        start(sb);
}

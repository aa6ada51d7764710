/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new start on kept files. As at a creation the network's policy is told while coved makes the box; when both have answered come its volumes, its certificate
 * if that is another one than before, and the start command of its template. It is resuming until that is ready: who asked for it, and who came by traffic,
 * waits. What fails leaves it paused (rule 4 of pause.c), but for the start command, and volumes for which its files have no place any more (mount.c): who can't
 * start his server any more must still get at his files.
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
        else if (supervisor_is_lost(sb->core->supervisor))
            waiters_tell(&sb->resumers, NULL, &why); /* what has become of it, the next worker is told */
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
    launch_cancel(sb);
    pause_let_go(sb);
    give_up_memory(sb, on_kept_again);
}

void cold_ready(struct sandbox *sb)
{
    if (!sb->wake_err.code)
        sandbox_prepare(sb);
}

void cold_on_network(struct sandbox *sb, const struct err *err)
{
    if (err && sb->is_certified)
        log_warn("resume sandbox %s: %s", sb->info.id, err->msg);
    else if (err)
        cold_failed(sb, err);
    if (!err || sb->is_certified)
        cold_ready(sb);
}

void cold_furnished(struct sandbox *sb)
{
    struct err err;
    if (network_wants_ca(sb) && !sb->is_certified) {
        sb->is_certified = true;
        if (network_install_ca(sb, &err) == 0)
            return; /* cold_on_network() goes on */
        log_warn("resume sandbox %s: %s", sb->info.id, err.msg);
    }
    fault_point("core.resume.furnished");
    if (sb->start_cmd && !sb->is_launched && !sb->info.volumes_failed)
        launch_begin(sb);
    else
        cold_launched(sb, NULL);
}

void cold_launched(struct sandbox *sb, const struct err *err)
{
    struct err local;
    if (err) {
        log_warn("resume sandbox %s: %s", sb->info.id, err->msg);
        sb->info.start_failed = arena_strndup(&sb->arena, err->msg, strlen(err->msg));
    }
    /* A worker that finds it resuming in the store starts it anew: nobody may have been told that it runs. */
    if (keeper_commit(sb->core->keeper, &local) < 0)
        cold_failed(sb, &local);
    else
        resume_runs(sb);
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
    sb->is_ready = sb->is_launched = sb->is_certified = sb->is_certifying = false;
    sb->info.start_failed = sb->info.volumes_failed = NULL;
    usage_forget(sb);
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
    struct err local;
    (void)fd_close(fd);
    if (sb->info.state == SANDBOX_RESUMING && !sb->core->closing) {
        if (answer || (sb->is_half_made && err->code == ERR_NOT_FOUND)) {
            pause_let_go(sb);
            sb->info.has_memory = sb->is_half_made = false;
            rows_extra(sb);
            if (keeper_commit(sb->core->keeper, &local) < 0)
                core_unrecorded(sb->core, &local);
            start(sb);
        } else {
            resume_failed(sb, err);
        }
    }
    sandbox_unref(sb);
}

void cold_go(struct sandbox *sb)
{
    if (sb->info.has_memory || sb->is_half_made)
        give_up_memory(sb, on_forgotten);
    else
        start(sb);
}

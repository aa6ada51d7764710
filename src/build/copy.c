/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COPY: the client's archive goes into the sandbox, is unpacked there, by its own tar, in a directory of its own, and
 * what was asked for goes to its place: a file or link to that path (or into it, when it ends with '/'), the content of
 * a directory into the directory.
 */
#include "base/fd.h"
#include "build/internal.h"

#include <unistd.h>

#define COPY_DIR "/tmp/.cove-copy"

enum { CHUNK = 64 * 1024 };

static const struct build_step *copy_step_of(const struct build_job *j)
{
    return &j->spec.steps[j->step];
}

void copy_stop(struct build_job *j)
{
    file_call_cancel(TAKE_PTR(j->file));
    if (j->upload_fd >= 0)
        (void)fd_close(j->upload_fd);
    j->upload_fd = -1;
}

/* The path down to the last part that holds no pattern; the client has applied those. */
static const char *plain_source(struct build_job *j, const char *source)
{
    struct str s = str_of(source);
    size_t end = 0, from = 0;
    for (size_t i = 0; i <= s.n; i++) {
        if (i < s.n && s.p[i] != '/')
            continue;
        struct str part = str_n(s.p + from, i - from);
        bool pattern = false;
        for (size_t k = 0; k < part.n; k++)
            pattern |= strchr("*?[{", part.p[k]) != NULL;
        if (pattern)
            break;
        end = i;
        from = i + 1;
    }
    return arena_strndup(&j->arena, s.p, end);
}

static void copy_stored(struct build_job *j)
{
    job_tell_done(j, arena_printf(&j->arena, "%.1f MiB sent, done", (double)j->upload_size / (1 << 20)));
    job_next(j);
}

static void unpacked(struct build_job *j, int code, const struct err *err)
{
    const struct build_step *s = copy_step_of(j);
    if (err || code)
        job_fail(j, "failed to copy '%.200s' to '%.200s': %.400s", s->args[0].p, s->args[1].p,
                 err                    ? err->msg
                 : j->process.output[0] ? j->process.output
                                        : "the files could not be unpacked");
    else
        job_store(j, copy_stored);
}

static void unpack(struct build_job *j)
{
    const struct build_step *s = copy_step_of(j);
    const char *user = j->ctx.user ? j->ctx.user : "root";
    const char *owner = s->n_args > 2 && s->args[2].n ? s->args[2].p : user;
    if (!strchr(owner, ':'))
        owner = arena_printf(&j->arena, "%s:", owner); /* and the group it logs in with */
    const char *args[] = {
        plain_source(j, s->args[0].p),        s->args[1].p, owner,    s->n_args > 3 ? s->args[3].p : "",
        j->ctx.workdir ? j->ctx.workdir : "", user,         COPY_DIR, NULL};
    j->process.done = unpacked;
    j->process.is_quiet = true;
    process_run(&j->process, j,
                &(struct build_command){.shell_text = script_copy,
                                        .args = args,
                                        .user = "root",
                                        .workdir = "/",
                                        .timeout_ms = j->b->config.step_timeout_ms});
}

static void copy_on_ready(void *ctx)
{
    struct build_job *j = ctx;
    char chunk[CHUNK];
    for (;;) {
        ssize_t n = pread(j->upload_fd, chunk, sizeof(chunk), (off_t)j->upload_sent);
        if (n < 0) {
            job_fail(j, "read the uploaded files: %s", strerror(errno));
            return;
        }
        if (n == 0) {
            file_write_eof(j->file);
            return;
        }
        size_t taken = file_write_data(j->file, str_n(chunk, (size_t)n));
        j->upload_sent += taken;
        if (taken < (size_t)n) {
            if (taken == 0)
                return;
            continue;
        }
    }
}

static void copy_on_end(void *ctx, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct build_job *j = ctx;
    j->file = NULL;
    (void)fd_close(j->upload_fd);
    j->upload_fd = -1;
    if (err)
        job_fail(j, "send the files of COPY: %s", err->msg);
    else
        unpack(j);
}

static const struct file_write_ops copy_ops = {.on_ready = copy_on_ready, .on_end = copy_on_end};

void copy_start(struct build_job *j, const struct build_step *step)
{
    struct err err;
    j->upload_sent = 0;
    if (uploads_open(j->b->uploads, step->files_hash, &j->upload_fd, &j->upload_size, &err) < 0)
        job_fail(j, "failed to copy '%.200s': %s", step->args[0].p, err.msg);
    else if (file_write(j->sb, &j->actor, STR("root"), STR(COPY_DIR "/a"), NULL, 0, &copy_ops, j, &j->file, &err) < 0)
        job_fail(j, "send the files of COPY: %s", err.msg);
}

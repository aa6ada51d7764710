/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of builds: what they write becomes lines of the log, never more than the log takes, and never slower for
 * it. */
#include "build/internal.h"

#define PATH_ALWAYS "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static void process_tell(struct build_process *p, int channel)
{
    struct str line = str_trim(str_n(p->line[channel], p->n_line[channel]));
    p->n_line[channel] = 0;
    while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n'))
        line.n--;
    if (line.n && !p->is_quiet)
        job_log(p->job, p->level, "[%s] [%s]: %.*s", p->prefix, channel ? "stderr" : "stdout", STR_ARG(line));
}

static void process_remember(struct build_process *p, struct str bytes)
{
    size_t room = sizeof(p->output) - 1;
    if (bytes.n > room)
        bytes = str_sub(bytes, bytes.n - room);
    size_t keep = MIN(p->n_output, room - bytes.n);
    memmove(p->output, p->output + p->n_output - keep, keep);
    memcpy(p->output + keep, bytes.p, bytes.n);
    p->n_output = keep + bytes.n;
    p->output[p->n_output] = '\0';
}

static void on_output(void *ctx, enum wire_channel wire_channel, struct str bytes)
{
    struct build_process *p = ctx;
    int channel = wire_channel == WIRE_STDERR;
    size_t n = bytes.n;
    process_remember(p, bytes);
    for (size_t i = 0; i < bytes.n; i++) {
        p->line[channel][p->n_line[channel]++] = bytes.p[i];
        if (bytes.p[i] == '\n' || p->n_line[channel] == LINE_MAX_BYTES)
            process_tell(p, channel);
    }
    exec_ack(p->follow, n);
}

static void finished(struct build_process *p, int code, const struct err *err)
{
    struct build_job *j = p->job;
    process_tell(p, 0);
    process_tell(p, 1);
    if (!job_is_over(j))
        p->done(j, code, err);
}

static void build_process_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    finished(ctx, err ? -1 : (int)exit->code + (exit->signaled ? 128 : 0), err);
}

static const struct exec_ops process_ops = {.on_output = on_output, .on_end = build_process_ends};

void process_run(struct build_process *p, struct build_job *j, const struct build_command *c)
{
    struct str args[16];
    struct pair envs[BUILD_ENVS_MAX];
    size_t n_args = 0, n_envs = 0;
    char *path = NULL;
    struct err err;
    if (!c->args) /* a step of the user's: as if logged in */
        args[n_args++] = STR("-l");
    args[n_args++] = STR("-c");
    args[n_args++] = str_of(c->shell_text);
    if (c->args)
        args[n_args++] = STR("sh");
    for (size_t i = 0; c->args && c->args[i] && n_args < ARRAY_SIZE(args); i++)
        args[n_args++] = str_of(c->args[i]);
    for (size_t i = 0; c->with_context && i < j->ctx.n_envs; i++) {
        const struct build_env *e = &j->ctx.envs[i];
        struct str value = str_of(e->value);
        if (strcmp(e->name, "PATH") == 0) {
            /* What the system needs is found even when somebody broke it. */
            path = arena_printf(&j->arena, "%s:" PATH_ALWAYS, e->value);
            value = str_of(path);
        }
        envs[n_envs++] = (struct pair){str_of(e->name), value};
    }
    const char *user = c->user ? c->user : j->ctx.user ? j->ctx.user : "root";
    struct exec_spec spec = {.cmd = j->has_bash ? STR("/bin/bash") : STR("/bin/sh"),
                             .args = args,
                             .n_args = n_args,
                             .envs = envs,
                             .n_envs = n_envs,
                             .user = str_of(user),
                             .cwd = str_of(c->workdir ? c->workdir : ""),
                             .timeout_ms = c->timeout_ms};
    p->job = j;
    p->n_line[0] = p->n_line[1] = p->n_output = 0;
    p->output[0] = '\0';
    if (exec_start(j->sb, &j->actor, &spec, &process_ops, p, &p->follow, &err) < 0)
        finished(p, -1, &err);
}

void process_stop(struct build_process *p)
{
    exec_close(TAKE_PTR(p->follow));
}

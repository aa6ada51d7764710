/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands.
 *
 *  1. One that is waited for ends with its call. The first MCP_TEXT_MAX bytes of each channel are in the answer; all of
 *     it is kept beside the log, where exec_output finds it by the seq of its exec.start.
 *  2. One in the background writes to a file inside, which is what exec_output reads. So its output outlives us, and
 *     costs us nothing; it is what the sandbox says that it is. How it ended is known here: of MCP_JOBS_MAX, the tenant
 *     with most forgets its first.
 */
#include "api/mcp/handlers.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "event/log.h"
#include "sandbox/share.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { JOB_ID_LEN = 20 };

#define JOBS_DIRECTORY "/tmp/.cove-mcp"
/* "$0": the file that its output goes to; the command is all of "$@", which the guard reads. */
#define PRELUDE "mkdir -p " JOBS_DIRECTORY " && exec >" JOBS_DIRECTORY "/\"$0\".log 2>&1 </dev/null; exec \"$@\""
#define SHELL "[ ! -x /bin/bash ] || exec /bin/bash -c \"$1\"; exec /bin/sh -c \"$1\""

/* ---- in the background ---- */

struct mcp_job {
    struct mcp *m;
    char id[JOB_ID_LEN + 1], sandbox[ID_SANDBOX_LEN + 1];
    uint64_t tenant;
    struct sandbox *sb;    /* a reference, while it runs */
    struct follow *follow; /* NULL: it ended */
    struct call *call;     /* that is told of its start; NULL: was told, or has gone */
    struct list node;      /* in m->ended */
    struct exec_exit exit;
    char error[sizeof(((struct err *)0)->msg)]; /* it isn't known how it ended */
};

static void exec_job_free(void *job)
{
    struct mcp_job *j = job;
    (void)map_del(&j->m->jobs, str_of(j->id));
    list_remove(&j->node);
    exec_close(j->follow);
    if (j->sb)
        sandbox_unref(j->sb);
    mem_free(j);
}

void jobs_free(struct mcp *m)
{
    facade_drain(&m->jobs, exec_job_free);
}

static uint64_t job_tenant(const struct list *node)
{
    return container_of(node, const struct mcp_job, node)->tenant;
}

static void job_ends(struct mcp_job *j)
{
    struct mcp *m = j->m;
    sandbox_unref(TAKE_PTR(j->sb));
    list_append(&m->ended, &j->node);
    if (m->n_ended < MCP_JOBS_MAX)
        m->n_ended++;
    else
        exec_job_free(container_of(share_first(&m->ended, job_tenant, NULL), struct mcp_job, node));
}

static void job_leaves(struct call *c)
{
    struct mcp_job *j = mcp_call_of(c)->own;
    if (j)
        j->call = NULL;
}

static struct call *job_take_call(struct mcp_job *j)
{
    if (j->call)
        mcp_call_of(j->call)->own = NULL;
    return TAKE_PTR(j->call);
}

static void job_starts(void *ctx, uint32_t pid)
{
    struct mcp_job *j = ctx;
    struct call *c = job_take_call(j);
    if (c)
        tool_result(c, json_pack("{s:s,s:b,s:i}", "exec", j->id, "running", 1, "pid", (int)pid), STR_NULL);
}

static void job_over(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct mcp_job *j = ctx;
    struct call *c = err ? job_take_call(j) : NULL;
    if (exit)
        j->exit = *exit;
    else
        (void)snprintf(j->error, sizeof(j->error), "%s", err->msg);
    if (c)
        call_fail_err(c, err);
    job_ends(j);
}

static void job_start(struct call *c, const struct exec_spec *spec, const char *id)
{
    static const struct exec_ops ops = {.on_start = job_starts, .on_end = job_over}; /* the prelude alone writes */
    struct mcp_job *j = mem_new(struct mcp_job);
    j->m = mcp_of(c);
    memcpy(j->id, id, JOB_ID_LEN);
    memcpy(j->sandbox, sandbox_info(c->sandbox)->id, ID_SANDBOX_LEN);
    j->tenant = sandbox_info(c->sandbox)->tenant;
    list_init(&j->node);
    (void)map_put(&j->m->jobs, str_of(j->id), j);
    if (!call_ok(c, exec_start(c->sandbox, &c->actor, spec, &ops, j, &j->follow, &c->err))) {
        exec_job_free(j);
        return;
    }
    j->sb = sandbox_ref(c->sandbox);
    j->call = c;
    mcp_call_of(c)->own = j;
    mcp_call_of(c)->cleanup = job_leaves;
}

/* ---- waited for ---- */

static void waited_closed(struct call *c)
{
    struct waited *w = mcp_call_of(c)->own;
    struct exec_call *call;
    struct err err;
    if (w->follow && w->pid) {
        const struct actor actor = {.name = c->actor.name, .who = c->actor.who};
        (void)!exec_signal(c->sandbox, &actor, &(struct exec_select){.pid = w->pid}, SIGKILL, exec_ignore, NULL, &call,
                           &err);
    }
    exec_close(TAKE_PTR(w->follow));
    buf_fini(&w->out[0]);
    buf_fini(&w->out[1]);
}

static void waited_starts(void *ctx, uint32_t pid)
{
    ((struct waited *)mcp_call_of(ctx)->own)->pid = pid;
}

static void waited_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct call *c = ctx;
    struct waited *w = mcp_call_of(c)->own;
    size_t i = channel == WIRE_STDERR;
    w->bytes[i] += bytes.n;
    (void)buf_append_str(&w->out[i], str_n(bytes.p, MIN(bytes.n, MCP_TEXT_MAX - buf_len(&w->out[i]))));
    exec_ack(w->follow, bytes.n);
    rpc_progress(c, w->bytes[0] + w->bytes[1], bytes);
}

static void waited_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct call *c = ctx;
    struct waited *w = mcp_call_of(c)->own;
    if (exit || err->code == ERR_DEADLINE_EXCEEDED)
        w->done(c, w, exit);
    else
        call_fail_err(c, err);
}

void waited_start(struct call *c, const struct exec_spec *spec,
                  void (*done)(struct call *c, struct waited *w, const struct exec_exit *exit))
{
    static const struct exec_ops ops = {waited_starts, waited_writes, waited_ends, NULL};
    struct waited *w = arena_alloc(http_arena(c->req), sizeof(*w));
    *w = (struct waited){.done = done, .started = clock_mono()};
    buf_init(&w->out[0], MCP_TEXT_MAX);
    buf_init(&w->out[1], MCP_TEXT_MAX);
    mcp_call_of(c)->own = w;
    if (!call_ok(c, exec_start(c->sandbox, &c->actor, spec, &ops, c, &w->follow, &c->err)))
        return;
    mcp_call_of(c)->cleanup = waited_closed;
    w->seq = event_newest(mcp_of(c)->config.events, sandbox_info(c->sandbox)->id); /* of its exec.start */
}

static void add_channel(json_t *content, const char *name, const struct waited *w, size_t i)
{
    struct str shown =
        w->bytes[i] > buf_len(&w->out[i]) ? mcp_cut(buf_str(&w->out[i]), MCP_TEXT_MAX - 4) : buf_str(&w->out[i]);
    (void)json_object_set_new(content, name, call_text(shown));
    if (shown.n == w->bytes[i])
        return;
    json_t *next = json_object_get(content, "next");
    if (!next)
        (void)json_object_set_new(content, "next", next = json_object());
    (void)json_object_set_new(next, name, json_integer((json_int_t)shown.n));
}

/* exit NULL: its time was up. */
static void exec_done(struct call *c, struct waited *w, const struct exec_exit *exit)
{
    char id[24];
    AUTO_BUF struct buf text = BUF_INIT(4 * MCP_TEXT_MAX);
    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)w->seq);
    json_t *content =
        json_pack("{s:s,s:I}", "exec", id, "duration_ms", (json_int_t)((clock_mono() - w->started) / USEC_PER_MS));
    if (exit)
        (void)json_object_set_new(content, exit->signaled ? "signal" : "exit_code", json_integer(exit->code));
    else
        (void)json_object_set_new(content, "timed_out", json_true());
    add_channel(content, "stdout", w, 0);
    add_channel(content, "stderr", w, 1);
    buf_append_str(&text, buf_str(&w->out[0]));
    buf_append_str(&text, buf_str(&w->out[1]));
    if (!exit || exit->signaled || exit->code || json_object_get(content, "next"))
        buf_printf(&text, "\n[%s %u%s]",
                   !exit            ? "killed: its time was up,"
                   : exit->signaled ? "killed by signal"
                                    : "exit status",
                   exit ? exit->code : 0, json_object_get(content, "next") ? "; the rest: exec_output" : "");
    tool_result(c, content, buf_len(&text) ? buf_str(&text) : STR("[no output]"));
}

void exec_tool(struct call *c)
{
    struct str command = STR(""), *args;
    const struct str *argv = NULL;
    struct exec_spec spec = {.user = STR("")};
    int64_t timeout_s = -1;
    bool is_background = false;
    size_t argc = 0, n = 0;
    char *id = arena_alloc(http_arena(c->req), JOB_ID_LEN + 1);
    if (!TOOL_WANTS(c, JSON_WANT_STR("command", &command), JSON_WANT_STRS("argv", &argv, &argc),
                    JSON_WANT_STR("cwd", &spec.cwd), JSON_WANT_PAIRS("env", &spec.envs, &spec.n_envs),
                    JSON_WANT_STR("user", &spec.user), JSON_WANT_INT("timeout_s", 1, 86400, &timeout_s),
                    JSON_WANT_BOOL("background", &is_background)))
        return;
    if (!command.n == !argc || (argv && !argv[0].n)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "exactly one of command and argv is needed");
        return;
    }
    args = arena_alloc(http_arena(c->req), (argc + 8) * sizeof(*args));
    spec.cmd = command.n || is_background || !argv ? STR("/bin/sh") : argv[0];
    spec.args = args;
    if (is_background) {
        struct str given = c->args[0];
        if (!given.p) { /* the same when this is run again: what was allowed is that action */
            id_token(id, JOB_ID_LEN);
            given = c->args[0] = str_of(id);
        }
        spec.tag = given;
        args[n++] = STR("-c");
        args[n++] = STR(PRELUDE);
        args[n++] = given;
        if (command.n)
            args[n++] = STR("/bin/sh");
    }
    for (size_t i = n ? 0 : 1; argv && i < argc; i++)
        args[n++] = argv[i];
    if (command.n) {
        args[n++] = STR("-c");
        args[n++] = STR(SHELL);
        args[n++] = STR("sh");
        args[n++] = command;
    }
    spec.n_args = n;
    spec.cwd = mcp_path(c, spec.cwd);
    spec.user = mcp_user(c, spec.user);
    spec.timeout_ms = (uint64_t)(timeout_s > 0 ? timeout_s : is_background ? 0 : MCP_EXEC_S) * 1000;
    if (is_background)
        job_start(c, &spec, c->args[0].p);
    else
        waited_start(c, &spec, exec_done);
}

/* ---- later ---- */

static bool is_job_id(struct str id)
{
    return id.n == JOB_ID_LEN && str_is_of(id, "a-z0-9");
}

static struct mcp_job *job_find(const struct call *c, struct str id)
{
    struct mcp_job *j = map_get(&mcp_of(c)->jobs, id);
    return j && strcmp(j->sandbox, sandbox_info(c->sandbox)->id) == 0 ? j : NULL;
}

static void output_result(struct call *c, json_t *content, struct str bytes, uint64_t offset, uint64_t size)
{
    struct str shown = offset + bytes.n < size ? mcp_cut(bytes, MCP_TEXT_MAX - 4) : bytes;
    uint64_t next = offset + shown.n;
    (void)json_object_set_new(content, "output", call_text(shown));
    (void)json_object_set_new(content, "next", json_integer((json_int_t)next));
    (void)json_object_set_new(content, "more", json_boolean(next < size));
    tool_result(c, content, STR_NULL);
}

static void output_kept(struct call *c, uint64_t seq, enum wire_channel channel, uint64_t offset)
{
    struct exec_kept kept;
    struct err err;
    char piece[MCP_TEXT_MAX];
    if (exec_kept_output(call_core(c), sandbox_info(c->sandbox)->id, seq, channel, &kept, &err) < 0) {
        call_refuse(c, err.code,
                    err.code == ERR_NOT_FOUND ? "exec %llu has no more output: its answer was complete" : "exec %llu",
                    (unsigned long long)seq);
        return;
    }
    AUTO_CLOSE int fd = kept.fd;
    ssize_t n = offset < kept.bytes ? pread(fd, piece, sizeof(piece), (off_t)offset) : 0;
    if (n < 0) {
        (void)err_errno(&err, errno, "read the kept output");
        call_fail_err(c, &err);
        return;
    }
    output_result(c, json_pack("{s:I}", "dropped", (json_int_t)kept.dropped), str_n(piece, (size_t)n), offset,
                  kept.bytes);
}

struct output_read {
    struct file_bytes f;
    struct str id;
    uint64_t offset;
};

static void output_read_done(struct call *c, struct file_bytes *f)
{
    const struct output_read *r = container_of(f, struct output_read, f);
    const struct mcp_job *j = job_find(c, r->id);
    json_t *content = json_object();
    if (j)
        (void)json_object_set_new(content, "running", json_boolean(j->follow != NULL));
    if (j && !j->follow && j->error[0])
        (void)json_object_set_new(content, "error", call_text(str_of(j->error)));
    else if (j && !j->follow)
        (void)json_object_set_new(content, j->exit.signaled ? "signal" : "exit_code", json_integer(j->exit.code));
    output_result(c, content, str_n(buf_data(&f->body.b), MIN(buf_len(&f->body.b), (size_t)MCP_TEXT_MAX)), r->offset,
                  MAX(f->body.size, r->offset + buf_len(&f->body.b)));
}

void exec_output_tool(struct call *c)
{
    struct str id = STR(""), channel = STR("stdout");
    int64_t offset = 0;
    uint64_t seq;
    if (!TOOL_WANTS(c, JSON_NEED_STR("exec", &id), JSON_WANT_STR("channel", &channel),
                    JSON_WANT_INT("offset", 0, INT64_MAX / 2, &offset)))
        return;
    bool is_stderr = str_eqc(channel, "stderr");
    if (!is_stderr && !str_eqc(channel, "stdout")) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "channel is stdout or stderr");
    } else if (is_job_id(id)) {
        struct output_read *r = arena_alloc(http_arena(c->req), sizeof(*r));
        *r = (struct output_read){
            .f = {.done = output_read_done, .may_miss = job_find(c, id) != NULL}, .id = id, .offset = (uint64_t)offset};
        file_bytes_read(c, str_of(arena_printf(http_arena(c->req), JOBS_DIRECTORY "/%.*s.log", STR_ARG(id))),
                        (uint64_t)offset, MCP_TEXT_MAX, &r->f);
    } else if (str_to_u64(id, &seq) == 0) {
        output_kept(c, seq, is_stderr ? WIRE_STDERR : WIRE_STDOUT, (uint64_t)offset);
    } else {
        call_refuse(c, ERR_INVALID_ARGUMENT, "exec must be the value in the answer to exec");
    }
}

static void exec_killed(struct call *c)
{
    tool_result(c, json_pack("{s:b}", "signalled", 1), STR_NULL);
}

void exec_kill_tool(struct call *c)
{
    struct exec_select which = {.by_tag = true};
    int64_t signal = SIGTERM;
    if (!TOOL_WANTS(c, JSON_NEED_STR("exec", &which.tag), JSON_WANT_INT("signal", 1, 64, &signal)))
        return;
    if (!is_job_id(which.tag))
        call_refuse(c, ERR_INVALID_ARGUMENT, "exec must be the value in the answer to a background exec");
    else
        call_ok(c, exec_signal(c->sandbox, &c->actor, &which, (int)signal, CALL_EXEC(c, exec_killed)));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Process.Start and Process.Connect: a process as a stream of events. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/envd_output.h"
#include "api/e2b/envd/process_spec.h"
#include "api/e2b/envd/rpc.h"

/*
 * Output goes from the core to the client in one step. While the client's queue is full nothing is acknowledged to the
 * core, so at most one window of the process's output is under way and the process waits; no byte is dropped.
 */
struct envd_follower {
    struct rpc_stream stream;
    struct exec_spec spec; /* of a process that is being started, until it runs or a shell was tried */
    bool may_try_shell;
};

static void envd_process_on_start(void *ctx, uint32_t pid)
{
    struct call *c = ctx;
    struct envd_follower *f = c->state;
    f->may_try_shell = false;
    if (c->answered)
        return;
    output_start(&e2b_of(c)->scratch, pid);
    rpc_stream_send(c);
    rpc_stream_alive(c);
}

static void on_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct call *c = ctx;
    if (c->answered)
        return;
    output_data(&e2b_of(c)->scratch, channel, bytes);
    rpc_stream_send(c);
    call_paced(c, bytes.n);
}

static void envd_process_exits(struct call *c, const struct exec_exit *exit)
{
    if (c->answered)
        return;
    output_exit(&e2b_of(c)->scratch, exit);
    rpc_stream_send(c);
    rpc_end(c);
}

static bool start_in_shell(struct call *c);

static void envd_process_on_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct call *c = ctx;
    struct envd_follower *f = c->state;
    if (exit)
        envd_process_exits(c, exit);
    else if (err->code == ERR_FAILED_PRECONDITION && f->may_try_shell && !c->answered && start_in_shell(c))
        return;
    else if (err->code == ERR_FAILED_PRECONDITION)
        rpc_fail(c, ERR_INVALID_ARGUMENT, "%s", err->msg);
    else if (err->code == ERR_DEADLINE_EXCEEDED)
        rpc_fail(c, err->code, "context deadline exceeded");
    else
        call_fail_err(c, err);
}

static const struct exec_ops envd_process_ops = {envd_process_on_start, on_output, envd_process_on_end, call_room};

static struct envd_follower *follower_new(struct call *c)
{
    struct envd_follower *f = rpc_stream_begin(c, sizeof(*f), STR("{\"event\":{\"keepalive\":{}}}"));
    call_pace(c, NULL);
    return f;
}

/* A program that can't be executed is a command that ends with 127 or 126 and says why, as it is where a shell runs all
 * of them. */
static bool start_in_shell(struct call *c)
{
    struct envd_follower *f = c->state;
    struct exec_spec spec = f->spec;
    struct str *args = arena_alloc(http_arena(c->req), (spec.n_args + 3) * sizeof(*args));
    struct err err;
    f->may_try_shell = false;
    args[0] = STR("-c");
    args[1] = STR("exec \"$0\" \"$@\"");
    args[2] = spec.cmd;
    if (spec.n_args)
        memcpy(args + 3, spec.args, spec.n_args * sizeof(*args));
    spec.cmd = STR("/bin/sh");
    spec.args = args;
    spec.n_args += 3;
    return exec_start(c->sandbox, &c->actor, &spec, &envd_process_ops, c, &c->follow, &err) == 0;
}

void envd_start(struct call *c)
{
    struct exec_spec spec;
    struct envd_follower *f;
    struct err err;
    if (process_start_read(c->body, http_arena(c->req), &spec, &err) < 0) {
        rpc_fail(c, err.code, "unmarshal message: %s", err.msg);
        return;
    }
    spec.user = c->user;
    spec.timeout_ms = c->timeout_ms;
    f = follower_new(c);
    f->spec = spec;
    f->may_try_shell = true;
    call_ok(c, exec_start(c->sandbox, &c->actor, &spec, &envd_process_ops, c, &c->follow, &c->err));
}

void envd_connect(struct call *c)
{
    struct exec_select which;
    if (!call_ok(c, process_select_read(c->body, &which, &c->err)))
        return;
    (void)follower_new(c);
    call_ok(c, exec_attach(c->sandbox, &c->actor, &which, c->timeout_ms, &envd_process_ops, c, &c->follow, &c->err));
}

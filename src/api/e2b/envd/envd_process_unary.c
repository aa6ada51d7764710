/* SPDX-License-Identifier: Apache-2.0 */
/* The unary methods of process.Process, but SendInput. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/process_spec.h"
#include "api/e2b/envd/rpc.h"

static void envd_process_unary_on_done(struct call *c)
{
    call_json(c, 200, STR("{}"));
}

/* ---- List ---- */

static void append_process(struct buf *b, const struct exec_process *p)
{
    json_put_comma(b);
    buf_append_cstr(b, "{\"config\":{");
    json_put_str(b, "cmd", p->cmd);
    if (p->n_args)
        json_put_strs(b, "args", p->args, p->n_args);
    if (p->n_envs)
        json_put_pairs(b, "envs", p->envs, p->n_envs);
    if (p->cwd.n)
        json_put_str(b, "cwd", p->cwd);
    buf_printf(b, "},\"pid\":%u", p->pid);
    if (p->has_tag)
        json_put_str(b, "tag", p->tag);
    buf_append_char(b, '}');
}

static void envd_process_unary_on_list(void *ctx, const struct exec_process *processes, size_t n, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct call *c = ctx;
    c->exec = NULL;
    if (err) {
        call_fail_err(c, err);
        return;
    }
    buf_append_cstr(&b, n ? "{\"processes\":[" : "{");
    for (size_t i = 0; i < n; i++)
        append_process(&b, &processes[i]);
    buf_append_cstr(&b, n ? "]}" : "}");
    rpc_answer(c, &b);
}

void envd_list(struct call *c)
{
    call_ok(c, exec_list(c->sandbox, &c->actor, envd_process_unary_on_list, c, &c->exec, &c->err));
}

/* ---- CloseStdin, SendSignal, Update ---- */

void envd_close_stdin(struct call *c)
{
    struct exec_select which;
    if (call_ok(c, process_select_read(c->body, &which, &c->err)))
        call_ok(c, exec_close_stdin(c->sandbox, &c->actor, &which, CALL_EXEC(c, envd_process_unary_on_done)));
}

void envd_send_signal(struct call *c)
{
    struct exec_select which;
    int signal;
    if (call_ok(c, process_select_read(c->body, &which, &c->err)) &&
        call_ok(c, process_signal_read(c->body, &signal, &c->err)))
        call_ok(c, exec_signal(c->sandbox, &c->actor, &which, signal, CALL_EXEC(c, envd_process_unary_on_done)));
}

void envd_update(struct call *c)
{
    struct exec_select which;
    uint16_t cols, rows;
    int r;
    if (!call_ok(c, process_select_read(c->body, &which, &c->err)))
        return;
    r = process_size_read(c->body, &cols, &rows, &c->err);
    if (r == 0)
        call_json(c, 200, STR("{}"));
    else if (call_ok(c, r))
        call_ok(c, exec_resize(c->sandbox, &c->actor, &which, cols, rows, CALL_EXEC(c, envd_process_unary_on_done)));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The unary methods of process.Process, but SendInput. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/process_spec.h"
#include "api/e2b/envd/rpc.h"

static void envd_process_unary_on_done(void *ctx, const struct err *err)
{
    struct call *c = ctx;

    c->exec = NULL;
    if (err)
        rpc_fail_err(c, err);
    else
        call_json(c, 200, STR("{}"));
}

/* ---- List ---- */

static void append_envs(struct buf *b, const struct exec_process *p)
{
    for (size_t i = 0; i < p->n_envs; i++) {
        buf_append_cstr(b, i ? "," : ",\"envs\":{");
        buf_append_json_string(b, p->envs[i].key);
        buf_append_char(b, ':');
        buf_append_json_string(b, p->envs[i].value);
    }
    if (p->n_envs)
        buf_append_char(b, '}');
}

static void append_process(struct buf *b, const struct exec_process *p)
{
    buf_append_cstr(b, "{\"config\":{\"cmd\":");
    buf_append_json_string(b, p->cmd);
    for (size_t i = 0; i < p->n_args; i++) {
        buf_append_cstr(b, i ? "," : ",\"args\":[");
        buf_append_json_string(b, p->args[i]);
    }
    if (p->n_args)
        buf_append_char(b, ']');
    append_envs(b, p);
    if (p->cwd.n) {
        buf_append_cstr(b, ",\"cwd\":");
        buf_append_json_string(b, p->cwd);
    }
    buf_printf(b, "},\"pid\":%u", p->pid);
    if (p->has_tag) {
        buf_append_cstr(b, ",\"tag\":");
        buf_append_json_string(b, p->tag);
    }
    buf_append_char(b, '}');
}

static void on_list(void *ctx, const struct exec_process *processes, size_t n, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct call *c = ctx;

    c->exec = NULL;
    if (err) {
        rpc_fail_err(c, err);
        return;
    }
    buf_append_char(&b, '{');
    for (size_t i = 0; i < n; i++) {
        buf_append_cstr(&b, i ? "," : "\"processes\":[");
        append_process(&b, &processes[i]);
    }
    buf_append_cstr(&b, n ? "]}" : "}");
    rpc_answer(c, &b);
}

void envd_list(struct call *c)
{
    struct err err;

    if (exec_list(c->sandbox, &c->actor, on_list, c, &c->exec, &err) < 0)
        rpc_fail_err(c, &err);
}

/* ---- CloseStdin, SendSignal, Update ---- */

void envd_close_stdin(struct call *c)
{
    struct exec_select which;
    struct err err;

    if (process_select_read(c->body, &which, &err) < 0 ||
        exec_close_stdin(c->sandbox, &c->actor, &which, envd_process_unary_on_done, c, &c->exec, &err) < 0)
        rpc_fail_err(c, &err);
}

void envd_send_signal(struct call *c)
{
    struct exec_select which;
    struct err err;
    int signal;

    if (process_select_read(c->body, &which, &err) < 0 || process_signal_read(c->body, &signal, &err) < 0 ||
        exec_signal(c->sandbox, &c->actor, &which, signal, envd_process_unary_on_done, c, &c->exec, &err) < 0)
        rpc_fail_err(c, &err);
}

void envd_update(struct call *c)
{
    struct exec_select which;
    uint16_t cols, rows;
    struct err err;
    int r;

    if (process_select_read(c->body, &which, &err) < 0) {
        rpc_fail_err(c, &err);
        return;
    }
    r = process_size_read(c->body, &cols, &rows, &err);
    if (r == 0)
        call_json(c, 200, STR("{}"));
    else if (r < 0 ||
             exec_resize(c->sandbox, &c->actor, &which, cols, rows, envd_process_unary_on_done, c, &c->exec, &err) < 0)
        rpc_fail_err(c, &err);
}

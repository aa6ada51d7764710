/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: one run
 *
 *  1. Its stages stand in a table, in order. Each begins something and fusion_run_step() comes again when that is over;
 *     or has nothing to do and says so. A stage changes nothing when its action waits for an answer, so it is run again
 *     then (api/kit/call.h, rule 4).
 *  2. The sandbox is the run's: made for it, and killed when it is over, however that comes about. Should this process
 *     die, the sandbox's time ends it.
 *  3. So many runs have a sandbox at a time as the machine can run side by side (fusion.slots); the others wait in
 *     order of arrival. A tenant that has none begins one all the same, so that nobody is kept out by another's. A time
 *     limit counts from the start of its command, so waiting costs nobody his time.
 *  4. What a program does is no error: it is in the results. What Cove couldn't do is in `message`; then the status is
 *     SandboxError.
 */
#include "api/fusion/handlers.h"

enum { MARGIN_MS = 60 * 1000 };

#define TEMPLATE "run-code"
#define TEMPLATE_CELLS "code-interpreter-v1"

/* ---- turns ---- */

static uint64_t run_tenant(const struct fusion_run *r)
{
    return r->call->actor.who.tenant;
}

/* How many of a list are a tenant's, and their bodies. */
static size_t run_count(struct list *list, uint64_t tenant, size_t *ret_bytes)
{
    size_t n = 0;
    *ret_bytes = 0;
    LIST_FOREACH (struct fusion_run, r, list, node) {
        if (run_tenant(r) != tenant)
            continue;
        n++;
        *ret_bytes += r->body_bytes;
    }
    return n;
}

static struct fusion_run *run_first(struct fusion *f)
{
    size_t ignored;
    LIST_FOREACH (struct fusion_run, r, &f->waiting, node)
        if (f->running < f->slots || !run_count(&f->busy, run_tenant(r), &ignored))
            return r;
    return NULL;
}

static void run_dispatch(struct fusion *f)
{
    struct fusion_run *r;
    if (f->is_dispatching)
        return;
    f->is_dispatching = true;
    while ((r = run_first(f))) {
        list_remove(&r->node);
        list_append(&f->busy, &r->node);
        f->n_waiting--;
        f->waiting_bytes -= r->body_bytes;
        f->running++;
        r->has_slot = true;
        call_step(r->call, fusion_run_step);
    }
    f->is_dispatching = false;
}

static void run_kill(struct sandbox *sb)
{
    static const struct actor own = {.name = "run-code", .is_own = true, .who.view = TENANT_ANY};
    struct err err;
    (void)!sandbox_kill(sb, &own, sandbox_ignore, NULL, &err); /* it may have ended by itself */
}

/* Lets go of everything outside of this process. */
static void run_end(struct fusion_run *r)
{
    struct fusion *f = fusion_of(r->call);
    exec_close(TAKE_PTR(r->follow));
    exec_call_cancel(TAKE_PTR(r->input));
    file_call_cancel(TAKE_PTR(r->call->file));
    fusion_cells_fini(r);
    timer_stop(&r->call->timer);
    if (r->sb) {
        run_kill(r->sb);
        sandbox_unref(TAKE_PTR(r->sb));
    }
    if (!r->has_slot && !list_empty(&r->node)) {
        f->n_waiting--;
        f->waiting_bytes -= r->body_bytes;
    }
    list_remove(&r->node);
    f->running -= r->has_slot;
    r->has_slot = false;
}

void fusion_run_forget(struct fusion_run *r)
{
    if (!r->is_init)
        return;
    run_end(r);
    file_body_fini(&r->body);
    buf_fini(&r->compiled.out);
    buf_fini(&r->compiled.err);
    buf_fini(&r->ran.out);
    buf_fini(&r->ran.err);
    json_decref(TAKE_PTR(r->fetched));
    buf_fini(&r->told);
    r->is_init = false;
}

static void run_closed(struct call *c)
{
    struct fusion *f = fusion_of(c);
    struct fusion_run *r = c->state;
    fusion_run_forget(r);
    if (r->fini)
        r->fini(r);
    run_dispatch(f);
}

/* ---- stages ---- */

enum run_progress { RUN_WAITS, RUN_NEXT, RUN_FAILED };

static void fusion_run_fail(struct fusion_run *r, const struct err *err)
{
    (void)snprintf(r->message, sizeof(r->message), "%s", err->msg);
    r->stage = -1;
}

static void run_made(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = ctx;
    struct fusion_run *r = c->req && !c->answered ? c->state : NULL;
    if (r && sb) {
        r->sb = sandbox_ref(sb);
        memcpy(r->sandbox, sandbox_info(sb)->id, sizeof(r->sandbox));
    } else if (r) {
        fusion_run_fail(r, err);
    } else if (sb) {
        run_kill(sb); /* nobody waits any more */
    }
    if (r)
        call_step(c, fusion_run_step);
    call_unref(c);
}

static enum run_progress run_make(struct fusion_run *r, struct err *err)
{
    const char *name = r->language ? TEMPLATE : TEMPLATE_CELLS;
    const struct sandbox_spec spec = {
        .template_ref = str_of(name),
        .timeout_ms = r->compile_ms + r->run_ms + MARGIN_MS,
        .memory_bytes = r->memory_bytes,
        .secure = true,
    };
    if (sandbox_create(call_core(r->call), &r->call->actor, &spec, run_made, call_hold(r->call), err) == 0)
        return RUN_WAITS;
    call_unref(r->call);
    if (err->code == ERR_NOT_FOUND)
        (void)err_set(err, ERR_NOT_FOUND, "there is no template %s: 'cove template add %s' makes it", name,
                      r->language ? TEMPLATE : "code-interpreter");
    return RUN_FAILED;
}

static void run_written(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    if (err)
        fusion_run_fail(f->call->state, err);
    call_step(f->call, fusion_run_step);
}

static int run_write(struct fusion_run *r, struct str path, struct err *err)
{
    struct file_body *f = &r->body;
    f->done = run_written;
    f->bytes = buf_str(&f->b);
    f->given = 0;
    return file_write(r->sb, &r->call->actor, STR(""), path, NULL, 0, &file_body_bytes, f, &r->call->file, err);
}

/* The next of the files that come along. */
static enum run_progress run_put_files(struct fusion_run *r, struct err *err)
{
    void *next = r->file ? json_object_iter_next(r->files, r->file) : json_object_iter(r->files);
    while (next && !json_is_string(json_object_iter_value(next)))
        next = json_object_iter_next(r->files, next);
    if (!next)
        return RUN_NEXT;
    const json_t *text = json_object_iter_value(next);
    const char *name = json_object_iter_key(next);
    buf_clear(&r->body.b);
    if (buf_append_unbase64(&r->body.b, json_str(text)) < 0) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "the content of '%.64s' is not base64", name);
        return RUN_FAILED;
    }
    if (run_write(r, str_of(name), err) < 0)
        return RUN_FAILED;
    r->file = next;
    return RUN_WAITS;
}

static enum run_progress run_put_code(struct fusion_run *r, struct err *err)
{
    if (!r->language || !*r->language->file)
        return RUN_NEXT;
    buf_clear(&r->body.b);
    (void)buf_append_str(&r->body.b, r->code);
    if (run_write(r, str_of(r->language->file), err) < 0)
        return RUN_FAILED;
    r->stage++; /* once is enough */
    return RUN_WAITS;
}

/* ---- commands ---- */

static struct fusion_result *run_result(struct fusion_run *r)
{
    return r->ran.status ? &r->ran : &r->compiled;
}

static void run_fed(void *ctx, const struct err *err);

/* The next of stdin; its end, when there is no more. A process that doesn't want it ends without. */
static void run_feed(struct fusion_run *r)
{
    const struct actor own = {.name = r->call->actor.name, .who = r->call->actor.who, .is_own = true};
    const struct exec_select which = {.pid = r->pid};
    struct str rest = str_sub(r->stdin_text, r->given);
    size_t n = MIN(rest.n, (size_t)1 << 20);
    struct err err;
    int failed = n ? exec_feed(r->sb, &which, str_n(rest.p, n), run_fed, r, &r->input, &err)
                   : exec_close_stdin(r->sb, &own, &which, run_fed, r, &r->input, &err);
    if (failed)
        r->input = NULL;
    r->given = n ? r->given + n : SIZE_MAX;
}

static void run_fed(void *ctx, const struct err *err)
{
    struct fusion_run *r = ctx;
    r->input = NULL;
    if (!err && r->given != SIZE_MAX && r->follow)
        run_feed(r);
}

static void run_starts(void *ctx, uint32_t pid)
{
    struct fusion_run *r = ((struct call *)ctx)->state;
    run_result(r)->started = clock_mono();
    r->pid = pid;
    r->given = 0;
    if (r->ran.status && r->stdin_text.n)
        run_feed(r);
}

static void run_writes(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct fusion_run *r = ((struct call *)ctx)->state;
    struct fusion_result *result = run_result(r);
    struct buf *b = channel == WIRE_STDERR ? &result->err : &result->out;
    (void)buf_append_str(b, str_n(bytes.p, MIN(bytes.n, FUSION_OUTPUT_MAX - buf_len(b))));
    exec_ack(r->follow, bytes.n);
}

static void run_over(struct fusion_run *r, const char *status)
{
    struct fusion_result *result = run_result(r);
    exec_call_cancel(TAKE_PTR(r->input));
    result->status = status;
    result->took = result->started ? clock_mono() - result->started : 0;
    call_step(r->call, fusion_run_step);
}

static void run_ends(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct fusion_run *r = ((struct call *)ctx)->state;
    if (!err) {
        run_result(r)->has_code = true;
        run_result(r)->code = exit->signaled ? -(int)exit->code : (int)exit->code;
        run_over(r, "Finished");
        return;
    }
    if (err->code == ERR_DEADLINE_EXCEEDED) {
        run_over(r, "TimeLimitExceeded");
        return;
    }
    fusion_run_fail(r, err);
    if (err->code == ERR_FAILED_PRECONDITION && !run_result(r)->started)
        (void)snprintf(r->message, sizeof(r->message), "the template " TEMPLATE " can't run %s: %s", r->language->name,
                       err->msg);
    run_over(r, "Error");
}

static enum run_progress run_command(struct fusion_run *r, struct fusion_result *result, const char *command,
                                     uint64_t timeout_ms, struct err *err)
{
    static const struct exec_ops ops = {run_starts, run_writes, run_ends, NULL};
    struct exec_spec spec = {.timeout_ms = MAX(timeout_ms, (uint64_t)1),
                             .stdin_open = result == &r->ran && r->stdin_text.n};
    struct str rest = str_of(command), words[24];
    size_t n = 0;
    if (strpbrk(command, "$*") && !strstr(command, "./*")) {
        words[n++] = STR("/bin/sh");
        words[n++] = STR("-c");
        words[n++] = rest;
        rest = STR_NULL;
    }
    while (rest.n && n < ARRAY_SIZE(words) && str_split(&rest, ' ', &words[n]))
        n++;
    spec.cmd = words[0];
    spec.args = words + 1;
    spec.n_args = n - 1;
    if (exec_start(r->sb, &r->call->actor, &spec, &ops, r->call, &r->follow, err) < 0)
        return RUN_FAILED;
    result->status = "Error"; /* until it is known better */
    return RUN_WAITS;
}

static enum run_progress run_compile(struct fusion_run *r, struct err *err)
{
    if (!r->language || !r->language->compile || r->compiled.status)
        return RUN_NEXT;
    return run_command(r, &r->compiled, r->language->compile, r->compile_ms, err);
}

static enum run_progress run_run(struct fusion_run *r, struct err *err)
{
    if (r->ran.status && r->language)
        return RUN_NEXT;
    if (fusion_result_is_bad(&r->compiled))
        return RUN_NEXT;
    if (r->language)
        return run_command(r, &r->ran, r->language->run, r->run_ms, err);
    int over = fusion_cells_next(r, err);
    if (over <= 0)
        return over < 0 ? RUN_FAILED : RUN_WAITS;
    r->next = 0;
    return RUN_NEXT;
}

/* ---- files that are fetched ---- */

/* What isn't there is left out. */
static void run_fetched(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct fusion_run *r = f->call->state;
    AUTO_BUF struct buf text = BUF_INIT(2 * (size_t)FUSION_FETCH_MAX);
    struct err large;
    r->given += buf_len(&f->b);
    if (buf_error(&f->b) < 0 || r->given > FUSION_FETCH_MAX) {
        (void)err_set(&large, ERR_RESOURCE_EXHAUSTED, "fetch_files: more than %d bytes", FUSION_FETCH_MAX);
        fusion_run_fail(r, &large);
    } else if (!err) {
        (void)buf_append_base64(&text, buf_str(&f->b));
        (void)json_object_set_new(r->fetched, json_string_value(json_array_get(r->fetch, r->next - 1)),
                                  json_stringn(buf_len(&text) ? buf_data(&text) : "", buf_len(&text)));
    }
    call_step(f->call, fusion_run_step);
}

static enum run_progress run_fetch(struct fusion_run *r, struct err *err)
{
    const json_t *name = json_array_get(r->fetch, r->next);
    struct call *c = r->call;
    if (!name)
        return RUN_NEXT;
    if (r->next == 0)
        r->given = 0;
    buf_clear(&r->body.b);
    r->body.done = run_fetched;
    if (file_read(r->sb, &c->actor, STR(""), json_str(name), 0, FUSION_FETCH_MAX + 1, &file_body_text, &r->body,
                  &c->file, err) < 0)
        return RUN_FAILED;
    r->next++;
    return RUN_WAITS;
}

/* ---- the whole ---- */

static enum run_progress (*const stages[])(struct fusion_run *r, struct err *err) = {
    run_make, run_put_files, run_put_code, run_compile, run_run, run_fetch,
};

void fusion_run_step(struct call *c)
{
    struct fusion_run *r = c->state;
    struct fusion *f = fusion_of(c);
    struct err err;
    http_watch_client(c->req, true); /* who leaves wants it no more */
    if (r->sb && r->stage == 0)
        r->stage = 1;
    while (r->stage >= 0 && r->stage < (int)ARRAY_SIZE(stages)) {
        switch (stages[r->stage](r, &err)) {
        case RUN_WAITS:
            return;
        case RUN_NEXT:
            r->stage++;
            break;
        case RUN_FAILED:
            if (err.code == ERR_PERMISSION_DENIED || err.reason == ERR_HELD) {
                call_fail_err(c, &err);
                return;
            }
            fusion_run_fail(r, &err);
            break;
        }
    }
    run_end(r);
    r->done(c, r);
    run_dispatch(f);
}

void fusion_run_start(struct call *c, struct fusion_run *r)
{
    struct fusion *f = fusion_of(c);
    size_t bytes;
    r->call = c;
    c->state = r;
    c->cleanup = run_closed;
    list_init(&r->node);
    r->is_init = true;
    r->fetched = json_object();
    buf_init(&r->told, FUSION_TOLD_MAX);
    file_body_init(&r->body, c, FUSION_BODY_MAX + FUSION_FETCH_MAX);
    buf_init(&r->compiled.out, FUSION_OUTPUT_MAX);
    buf_init(&r->compiled.err, FUSION_OUTPUT_MAX);
    buf_init(&r->ran.out, FUSION_OUTPUT_MAX);
    buf_init(&r->ran.err, FUSION_OUTPUT_MAX);
    if (run_count(&f->waiting, run_tenant(r), &bytes) >= FUSION_WAITING_MAX ||
        bytes + c->holder.bytes > FUSION_WAITING_BYTES || f->n_waiting >= 2 * FUSION_WAITING_MAX ||
        f->waiting_bytes + c->holder.bytes > 2 * (size_t)FUSION_WAITING_BYTES) {
        call_fail(c, 429, "%zu programs are waiting already: try again later", f->n_waiting);
        return;
    }
    r->body_bytes = c->holder.bytes;
    list_append(&f->waiting, &r->node);
    http_watch_client(c->req, true);
    f->n_waiting++;
    f->waiting_bytes += r->body_bytes;
    run_dispatch(f);
}

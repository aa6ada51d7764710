/* SPDX-License-Identifier: Apache-2.0 */
/* What execd tells beside streams: what became of a command that is not in memory, the log of one in the background,
 * and the sandbox's figures. */
#include "api/kit/file_body.h"
#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "event/log.h"

/* ---- what the sandbox's log knows of a command ---- */

enum { RECORD_STEP = 2000 };

struct report_record {
    char tag[COMMAND_ID_LEN + ID_UUID_LEN + 16]; /* as it stands in exec.start, or the beginning of that */
    struct sandbox_log_walk walk;
    uint64_t next, seq; /* to be read; the command's exec.start, 0: not found */
    usec_t started, ended;
    json_t *start, *end; /* owned */
};

static bool report_record_event(const struct event *e, void *ctx)
{
    struct report_record *r = ctx;
    r->next = e->seq + 1;
    if (!r->seq && e->kind == EVENT_EXEC_START && str_starts(e->actor, STR("opensandbox")) &&
        memmem(e->data.p, e->data.n, r->tag, strlen(r->tag))) {
        r->start = json_loadb(e->data.p, e->data.n, JSON_ALLOW_NUL, NULL);
        r->seq = e->seq;
        r->started = e->time;
    } else if (r->seq && e->cause == r->seq && (e->kind == EVENT_EXEC_EXIT || e->kind == EVENT_EXEC_FAILED)) {
        r->end = json_loadb(e->data.p, e->data.n, JSON_ALLOW_NUL, NULL);
        r->ended = e->time;
    }
    return !r->end;
}

void report_status(struct call *c, const char *content, const char *error, usec_t started, usec_t ended, bool runs,
                   int exit_code)
{
    const char *session = c->args[1].p;
    json_t *answer = json_pack("{s:s,s:s,s:b,s:s,s:o*,s:o*,s:s*,s:s*}", "id", c->args[0].p, "content", content,
                               "running", runs, "error", error, "started_at", call_time(started), "finished_at",
                               call_time(ended), "session_id", session, "run_id", session ? c->args[0].p : NULL);
    if (!runs)
        (void)json_object_set_new(answer, "exit_code", json_integer(exit_code));
    call_value(c, 200, answer);
}

static void report_record_answer(struct call *c, struct report_record *r)
{
    const json_t *code = json_object_get(r->end, "exit_code"), *signal = json_object_get(r->end, "signal"),
                 *message = json_object_get(r->end, "message");
    long long exit_code = code ? json_integer_value(code) : -1;
    char error[128] = "";
    if (json_is_true(json_object_get(r->end, "deadline_exceeded")))
        (void)snprintf(error, sizeof(error), "the time-out of the command has passed");
    else if (json_is_string(message))
        (void)snprintf(error, sizeof(error), "%s", json_string_value(message));
    else if (r->end && exit_code)
        (void)snprintf(error, sizeof(error), signal ? "signal: %lld" : "exit status %lld",
                       signal ? json_integer_value(signal) : exit_code);
    report_status(c, session_content(r->start), error, r->started, r->ended, !r->end, (int)exit_code);
}

static void report_record_closed(struct call *c)
{
    struct report_record *r = c->state;
    json_decref(r->start);
    json_decref(r->end);
}

/* A little at a time: it may be long. */
static void report_record_step(struct call *c)
{
    struct report_record *r = c->state;
    int n = event_read(r->walk.log, r->walk.id, r->next, RECORD_STEP, report_record_event, r, &c->err);
    if (!call_ok(c, n))
        return;
    if (n == RECORD_STEP && !r->end)
        call_set_timer(c, 1, report_record_step);
    else if (r->seq)
        report_record_answer(c, r);
    else
        call_fail(c, 404, "there is no command '%.*s'", STR_ARG_MAX(c->args[0], 64));
}

void report_recorded(struct call *c)
{
    struct report_record *r = call_state(c, sizeof(*r), report_record_closed);
    if (!command_is_id(c->args[0])) {
        call_fail(c, 404, "there is no such command");
        return;
    }
    (void)snprintf(r->tag, sizeof(r->tag), "\"tag\":\"%.*s%s%.*s", STR_ARG(c->args[0]), c->args[1].p ? ":" : "",
                   STR_ARG_MAX(c->args[1], ID_UUID_LEN));
    if (!call_ok(c, sandbox_log_walk_init(&r->walk, call_core(c), str_of(sandbox_info(c->sandbox)->id), 0, 1, &c->err)))
        return;
    report_record_step(c);
}

/* ---- the log of one in the background ---- */

struct report_reading {
    struct file_body f;
    uint64_t from;
};

enum { LOG_PIECE = 4 << 20 };

static void report_log_closed(struct call *c)
{
    file_body_fini(&((struct report_reading *)c->state)->f);
}

static void report_log_read(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct call *c = f->call;
    char cursor[24];
    if (err && err->code != ERR_NOT_FOUND) {
        call_fail_err(c, err);
        return;
    }
    if (err && !command_is_background(c, c->args[0])) {
        call_fail(c, 400, "the output of that command is not kept: only background commands have some");
        return;
    }
    uint64_t next = container_of(f, struct report_reading, f)->from + buf_len(&f->b);
    (void)snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)next);
    http_add_header(c->req, c->args[1].p ? STR("execd-isolated-tail-cursor") : STR("execd-commands-tail-cursor"),
                    str_of(cursor));
    call_respond(c, 200, "text/plain; charset=utf-8", buf_str(&f->b));
}

void report_log(struct call *c)
{
    struct report_reading *l = call_state(c, sizeof(*l), report_log_closed);
    char path[64];
    file_body_init(&l->f, c, LOG_PIECE);
    l->f.done = report_log_read;
    if (call_query_u64(c, "cursor", &l->from) < 0)
        return;
    if (!command_is_id(c->args[0])) {
        call_fail(c, 400, "there is no such command");
        return;
    }
    (void)snprintf(path, sizeof(path), COMMAND_DIRECTORY "/%.*s.log", STR_ARG(c->args[0]));
    file_body_begun(&l->f, file_read(c->sandbox, &c->actor, STR("root"), str_of(path), l->from, LOG_PIECE,
                                     FILE_BODY(&l->f, &file_body_text)));
}

/* ---- figures ---- */

static json_t *report_figures(const struct sandbox_sample *s)
{
    double pct = MIN(MAX(s->cpu_used_pct, 0), 100), mib = 1 << 20;
    return json_pack("{s:I,s:f,s:f,s:f,s:I}", "cpu_count", (json_int_t)s->cpu_count, "cpu_used_pct", pct,
                     "mem_total_mib", (double)s->memory_total / mib, "mem_used_mib", (double)s->memory_used / mib,
                     "timestamp", (json_int_t)(s->at / USEC_PER_MS));
}

static void report_sampled(void *ctx, const struct sandbox_sample *s, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_value(c, 200, report_figures(s));
}

void report_metrics(struct call *c)
{
    call_held(c, sandbox_sample_now(c->sandbox, report_sampled, call_hold(c), &c->err));
}

static void report_watch_next(struct call *c);

static void report_watched(void *ctx, const struct sandbox_sample *s, const struct err *err)
{
    struct call *c = ctx;
    AUTO_JSON json_t *figures = s && c->req && !c->answered ? report_figures(s) : NULL;
    AUTO_FREE char *text = figures ? json_dumps(figures, JSON_COMPACT) : NULL;
    if (text && !http_response_full(c->req)) {
        AUTO_BUF struct buf b = BUF_INIT(1024);
        buf_printf(&b, "data: %s\n\n", text);
        (void)http_response_write(c->req, buf_str(&b));
    }
    if (c->req && !c->answered && err)
        http_abort(c->req);
    else if (c->req && !c->answered)
        call_set_timer(c, 1000, report_watch_next);
    call_unref(c);
}

static void report_watch_next(struct call *c)
{
    struct err err;
    if (sandbox_sample_now(c->sandbox, report_watched, call_hold(c), &err) < 0) {
        http_abort(c->req);
        call_unref(c);
    }
}

void report_metrics_watch(struct call *c)
{
    sse_start(c);
    report_watch_next(c);
}

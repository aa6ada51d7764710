/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event log of a sandbox as lines for people. Where a time is in it is searched for, in steps of halves; a clock
 * that was set back puts events where they are not looked for.
 */
#include "base/mem.h"
#include "sandbox/object.h"

enum { PER_READ = 1000, BACK_PER_READ = 64 };

/* One call's. */
struct logs_reading {
    struct sandbox_log_walk *walk;
    sandbox_log_fn fn;
    void *ctx;
    uint64_t end; /* back: before this event */
    struct logs_copy *copies;
    size_t n_copies;
};

static const char *level_of(enum event_kind kind)
{
    static const char *const levels[EVENT_KIND_MAX] = {
        [EVENT_SANDBOX_FAILED] = "error", [EVENT_AGENT_VIOLATION] = "error", [EVENT_AGENT_LOST] = "error",
        [EVENT_ENV_VIOLATION] = "error",  [EVENT_EXEC_FAILED] = "error",     [EVENT_GUARD_DENIED] = "warn",
        [EVENT_GUARD_ASKED] = "warn",     [EVENT_NET_DENIED] = "warn",       [EVENT_LIMIT_OOM] = "warn",
        [EVENT_LIMIT_PIDS] = "warn",      [EVENT_LIMIT_DISK] = "warn",       [EVENT_FILE_FAILED] = "warn",
        [EVENT_LOG_SUPPRESSED] = "warn",  [EVENT_FILE_STAT] = "debug",       [EVENT_FILE_LIST] = "debug",
        [EVENT_DIAL] = "debug",           [EVENT_FILE_WRITTEN] = "debug",    [EVENT_PROC_EXEC] = "debug",
        [EVENT_PROC_EXIT] = "debug"};
    return kind < EVENT_KIND_MAX && levels[kind] ? levels[kind] : "info";
}

/* "exec.start" comes from "exec". */
static struct str logger_of(struct str kind)
{
    ssize_t dot = str_find_char(kind, '.');
    return dot > 0 ? str_n(kind.p, (size_t)dot) : kind;
}

/* "sandbox.timeout {...}", with a NUL */
static void put_message(const struct event *e, struct buf *message)
{
    (void)buf_append_str(message, e->kind_name);
    if (e->data.n > 2) {
        (void)buf_append_char(message, ' ');
        (void)buf_append_str(message, e->data);
    }
    (void)buf_append_char(message, 0);
}

static bool logs_tell(sandbox_log_fn fn, void *ctx, usec_t time, enum event_kind kind, struct str kind_name,
                      const char *message)
{
    char logger[32];
    struct str name = logger_of(kind_name);
    (void)snprintf(logger, sizeof(logger), "%.*s", STR_ARG(name));
    return fn(ctx, time, level_of(kind), logger, message);
}

bool sandbox_log_line(const struct event *e, sandbox_log_fn fn, void *ctx)
{
    AUTO_BUF struct buf message = BUF_INIT(EVENT_DATA_MAX + 256);
    put_message(e, &message);
    return buf_error(&message) || logs_tell(fn, ctx, e->time, e->kind, e->kind_name, buf_data(&message));
}

/* ---- where a time is ---- */

struct logs_probe {
    uint64_t seq;
    usec_t time;
};

static bool on_probe(const struct event *e, void *ctx)
{
    *(struct logs_probe *)ctx = (struct logs_probe){e->seq, e->time};
    return false;
}

/* The first event that is not older; bounds.last + 1: there is none. */
static int find_time(const struct sandbox_log_walk *w, const struct event_bounds *bounds, usec_t time,
                     uint64_t *ret_seq, struct err *err)
{
    uint64_t low = bounds->first, high = bounds->last + 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct logs_probe probe;
        int n = event_read(w->log, w->id, middle, 1, on_probe, &probe, err);
        if (n < 0)
            return -1;
        if (n && probe.seq < high && probe.time < time)
            low = probe.seq + 1;
        else
            high = middle;
    }
    *ret_seq = low;
    return 0;
}

static int logs_begin(struct sandbox_log_walk *w, struct core *core, struct str id, usec_t from, size_t limit,
                      struct event_bounds *ret_bounds, struct err *err)
{
    *w = (struct sandbox_log_walk){.log = core->config.events, .from = from, .lines = limit, .rows = SANDBOX_LOGS_MAX};
    if (!id_is_sandbox(id))
        return err_set(err, ERR_NOT_FOUND, "there is no such sandbox");
    memcpy(w->id, id.p, ID_SANDBOX_LEN);
    return event_bounds_get(w->log, w->id, ret_bounds, err);
}

int sandbox_log_walk_init(struct sandbox_log_walk *w, struct core *core, struct str id, usec_t from_real, size_t limit,
                          struct err *err)
{
    struct event_bounds bounds = {0};
    if (logs_begin(w, core, id, from_real, limit, &bounds, err) < 0)
        return -1;
    return find_time(w, &bounds, from_real, &w->next, err);
}

int sandbox_log_walk_init_back(struct sandbox_log_walk *w, struct core *core, struct str id, usec_t from_real,
                               usec_t until_real, size_t limit, struct err *err)
{
    struct event_bounds bounds = {0};
    if (logs_begin(w, core, id, from_real, limit, &bounds, err) < 0 ||
        find_time(w, &bounds, from_real, &w->first, err) < 0)
        return -1;
    w->is_back = true;
    return find_time(w, &bounds, until_real < UINT64_MAX ? until_real + 1 : UINT64_MAX, &w->next, err);
}

/* ---- from the oldest ---- */

static bool logs_on_event(const struct event *e, void *ctx)
{
    struct logs_reading *r = ctx;
    struct sandbox_log_walk *w = r->walk;
    w->next = e->seq + 1;
    w->rows--;
    if (e->time < w->from)
        return true; /* the clock was set back */
    w->lines--;
    w->is_over = !sandbox_log_line(e, r->fn, r->ctx);
    return !w->is_over && w->lines;
}

static int read_on(struct logs_reading *r, size_t n, struct err *err)
{
    int read = event_read(r->walk->log, r->walk->id, r->walk->next, n, logs_on_event, r, err);
    if (read == 0)
        r->walk->is_over = true;
    return read;
}

/* ---- from the newest: the log is read forwards, a little at a time ---- */

struct logs_copy {
    usec_t time;
    enum event_kind kind;
    size_t kind_n;
    char *message; /* owned; begins with the name of the kind */
};

static bool on_copy(const struct event *e, void *ctx)
{
    struct logs_reading *r = ctx;
    AUTO_BUF struct buf message = BUF_INIT(EVENT_DATA_MAX + 256);
    if (e->seq >= r->end)
        return false;
    put_message(e, &message);
    if (!buf_error(&message))
        r->copies[r->n_copies++] = (struct logs_copy){e->time, e->kind, e->kind_name.n,
                                                      mem_strndup(buf_data(&message), buf_len(&message) - 1)};
    return true;
}

static void tell_copies(struct logs_reading *r)
{
    struct sandbox_log_walk *w = r->walk;
    while (r->n_copies) {
        struct logs_copy *c = &r->copies[--r->n_copies];
        if (!w->is_over && c->time >= w->from) {
            w->lines--;
            w->is_over = !logs_tell(r->fn, r->ctx, c->time, c->kind, str_n(c->message, c->kind_n), c->message);
        }
        mem_free(c->message);
    }
}

static int read_back(struct logs_reading *r, size_t most, struct err *err)
{
    struct sandbox_log_walk *w = r->walk;
    struct logs_copy copies[BACK_PER_READ];
    if (w->next <= w->first) {
        w->is_over = true;
        return 0;
    }
    size_t n = MIN(MIN(most, w->lines), MIN((size_t)BACK_PER_READ, (size_t)(w->next - w->first)));
    r->copies = copies;
    r->end = w->next;
    w->next -= n;
    w->rows -= n;
    int read = event_read(w->log, w->id, w->next, n, on_copy, r, err);
    tell_copies(r);
    r->copies = NULL;
    return read;
}

/* ---- in slices, and whole ---- */

int sandbox_log_walk_next(struct sandbox_log_walk *w, size_t events, sandbox_log_fn fn, void *ctx, struct err *err)
{
    struct logs_reading r = {.walk = w, .fn = fn, .ctx = ctx};
    size_t leave = w->rows - MIN(w->rows, events);
    while (w->lines && !w->is_over && w->rows > leave) {
        size_t most = MIN(w->rows - leave, (size_t)PER_READ);
        if ((w->is_back ? read_back(&r, most, err) : read_on(&r, most, err)) < 0)
            return -1;
    }
    return w->lines && !w->is_over && w->rows;
}

int sandbox_logs_back(struct core *core, struct str id, usec_t from_real, usec_t until_real, size_t limit,
                      sandbox_log_fn fn, void *ctx, struct err *err)
{
    struct sandbox_log_walk w;
    if (sandbox_log_walk_init_back(&w, core, id, from_real, until_real, limit, err) < 0)
        return -1;
    return sandbox_log_walk_next(&w, SANDBOX_LOGS_MAX, fn, ctx, err) < 0 ? -1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event log of a sandbox as lines for people. Where a time is in it is searched for, in steps of halves; a clock that was set back puts events where
 * they are not looked for.
 */
#include "base/mem.h"
#include "sandbox/internal.h"

enum { PER_READ = 1000, BACK_PER_READ = 64 };

struct reading {
    struct event_log *log;
    char id[ID_SANDBOX_LEN + 1];
    struct event_bounds bounds;
    sandbox_log_fn fn;
    void *ctx;
    usec_t from;
    size_t left; /* lines that are still wanted */
    size_t rows; /* events that may still be read in this turn */
    uint64_t next_seq;
    bool stopped;
};

static const char *level_of(enum event_kind kind)
{
    switch (kind) {
    case EVENT_SANDBOX_FAILED:
    case EVENT_AGENT_VIOLATION:
    case EVENT_AGENT_LOST:
    case EVENT_EXEC_FAILED:
        return "error";
    case EVENT_GUARD_DENIED:
    case EVENT_NET_DENIED:
    case EVENT_LIMIT_OOM:
    case EVENT_LIMIT_PIDS:
    case EVENT_LIMIT_DISK:
    case EVENT_FILE_FAILED:
    case EVENT_LOG_SUPPRESSED:
        return "warn";
    case EVENT_FILE_STAT:
    case EVENT_FILE_LIST:
    case EVENT_DIAL:
        return "debug";
    default:
        return "info";
    }
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

static bool tell(struct reading *r, usec_t time, enum event_kind kind, struct str kind_name, const char *message)
{
    char logger[32];
    struct str name = logger_of(kind_name);
    (void)snprintf(logger, sizeof(logger), "%.*s", STR_ARG(name));
    if (!r->fn(r->ctx, time, level_of(kind), logger, message))
        r->stopped = true;
    return !r->stopped;
}

bool sandbox_log_line(const struct event *e, sandbox_log_fn fn, void *ctx)
{
    AUTO_BUF struct buf message = BUF_INIT(EVENT_DATA_MAX + 256);
    struct reading r = {.fn = fn, .ctx = ctx};
    put_message(e, &message);
    return buf_error(&message) || tell(&r, e->time, e->kind, e->kind_name, buf_data(&message));
}

static int begin(struct reading *r, struct core *core, struct str id, struct err *err)
{
    r->log = core->config.events;
    r->rows = SANDBOX_LOGS_MAX;
    if (!id_is_sandbox(id))
        return err_set(err, ERR_NOT_FOUND, "there is no such sandbox");
    memcpy(r->id, id.p, ID_SANDBOX_LEN);
    return event_bounds_get(r->log, r->id, &r->bounds, err);
}

struct probe {
    uint64_t seq;
    usec_t time;
};

static bool on_probe(const struct event *e, void *ctx)
{
    *(struct probe *)ctx = (struct probe){e->seq, e->time};
    return false;
}

/* The first event that is not older; bounds.last + 1: there is none. */
static int find_time(const struct reading *r, usec_t time, uint64_t *ret_seq, struct err *err)
{
    uint64_t low = r->bounds.first, high = r->bounds.last + 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct probe probe;
        int n = event_read(r->log, r->id, middle, 1, on_probe, &probe, err);
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

/* ---- from the oldest ---- */

static bool on_event(const struct event *e, void *ctx)
{
    struct reading *r = ctx;
    r->next_seq = e->seq + 1;
    r->rows--;
    if (e->time < r->from)
        return true; /* the clock was set back */
    r->left--;
    r->stopped = !sandbox_log_line(e, r->fn, r->ctx);
    return !r->stopped && r->left;
}

int sandbox_logs(struct core *core, struct str id, usec_t from_real, size_t limit, sandbox_log_fn fn, void *ctx,
                 struct err *err)
{
    struct reading r = {.fn = fn, .ctx = ctx, .from = from_real, .left = limit};
    if (begin(&r, core, id, err) < 0 || find_time(&r, from_real, &r.next_seq, err) < 0)
        return -1;
    while (r.left && r.rows && !r.stopped) {
        int n = event_read(r.log, r.id, r.next_seq, MIN(r.rows, (size_t)PER_READ), on_event, &r, err);
        if (n <= 0)
            return n;
    }
    return 0;
}

/* ---- from the newest: the log is read forwards, a little at a time ---- */

struct copy {
    uint64_t seq;
    usec_t time;
    enum event_kind kind;
    size_t kind_n;
    char *message; /* owned; begins with the name of the kind */
};

struct copies {
    struct copy at[BACK_PER_READ];
    size_t n;
    uint64_t end; /* before this event */
};

static bool on_copy(const struct event *e, void *ctx)
{
    struct copies *copies = ctx;
    AUTO_BUF struct buf message = BUF_INIT(EVENT_DATA_MAX + 256);
    if (e->seq >= copies->end)
        return false;
    put_message(e, &message);
    if (!buf_error(&message))
        copies->at[copies->n++] = (struct copy){e->seq, e->time, e->kind, e->kind_name.n,
                                                mem_strndup(buf_data(&message), buf_len(&message) - 1)};
    return true;
}

static void tell_copies(struct reading *r, struct copies *copies)
{
    while (copies->n) {
        struct copy *c = &copies->at[--copies->n];
        if (!r->stopped && c->time >= r->from) {
            r->left--;
            (void)tell(r, c->time, c->kind, str_n(c->message, c->kind_n), c->message);
        }
        mem_free(c->message);
    }
}

int sandbox_logs_back(struct core *core, struct str id, usec_t from_real, usec_t until_real, size_t limit,
                      sandbox_log_fn fn, void *ctx, struct err *err)
{
    struct reading r = {.fn = fn, .ctx = ctx, .from = from_real, .left = limit};
    uint64_t first;
    if (begin(&r, core, id, err) < 0 || find_time(&r, from_real, &first, err) < 0 ||
        find_time(&r, until_real < UINT64_MAX ? until_real + 1 : UINT64_MAX, &r.next_seq, err) < 0)
        return -1;
    while (r.left && r.rows && !r.stopped && r.next_seq > first) {
        size_t n = MIN(MIN(r.left, r.rows), MIN((size_t)BACK_PER_READ, (size_t)(r.next_seq - first)));
        struct copies copies = {.end = r.next_seq};
        r.next_seq -= n;
        r.rows -= n;
        int read = event_read(r.log, r.id, r.next_seq, n, on_copy, &copies, err);
        tell_copies(&r, &copies);
        if (read < 0)
            return -1;
    }
    return 0;
}

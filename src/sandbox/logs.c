/* SPDX-License-Identifier: Apache-2.0 */
/* The event log of a sandbox as lines for people. */
#include "sandbox/internal.h"

struct reading {
    usec_t from;
    size_t left;
    bool stopped;
    uint64_t next_seq;
    sandbox_log_fn fn;
    void *ctx;
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
    case EVENT_LIMIT_OUTPUT:
    case EVENT_LIMIT_TIME:
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

static bool on_event(const struct event *e, void *ctx)
{
    struct reading *r = ctx;
    r->next_seq = e->seq + 1;
    if (e->time < r->from)
        return true;
    AUTO_BUF struct buf message = BUF_INIT(EVENT_DATA_MAX + 256);
    char logger[32];
    struct str name = logger_of(e->kind_name);
    (void)snprintf(logger, sizeof(logger), "%.*s", STR_ARG(name));
    (void)buf_append_str(&message, e->kind_name);
    if (e->data.n > 2) {
        (void)buf_append_char(&message, ' ');
        (void)buf_append_str(&message, e->data);
    }
    (void)buf_append_char(&message, 0);
    r->left--;
    if (!buf_error(&message) && !r->fn(r->ctx, e->time, level_of(e->kind), logger, buf_data(&message)))
        r->stopped = true;
    return !r->stopped && r->left;
}

int sandbox_logs(struct core *core, struct str id, usec_t from_real, size_t limit, sandbox_log_fn fn, void *ctx,
                 struct err *err)
{
    enum { PER_READ = 1000, READS_MAX = 100 };
    char text[ID_SANDBOX_LEN + 1];
    if (!id_is_sandbox(id))
        return err_set(err, ERR_NOT_FOUND, "there is no such sandbox");
    memcpy(text, id.p, ID_SANDBOX_LEN);
    text[ID_SANDBOX_LEN] = 0;
    struct event_bounds bounds;
    if (event_bounds_get(core->config.events, text, &bounds, err) < 0)
        return -1;
    struct reading r = {.from = from_real, .left = limit, .fn = fn, .ctx = ctx, .next_seq = bounds.first};
    for (int i = 0; i < READS_MAX && r.left && !r.stopped; i++) {
        int n = event_read(core->config.events, text, r.next_seq, PER_READ, on_event, &r, err);
        if (n < 0)
            return -1;
        if (n < PER_READ)
            break;
    }
    return 0;
}

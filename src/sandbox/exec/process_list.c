/* SPDX-License-Identifier: Apache-2.0 */
/* PROCESSES: asking for it, and walking what comes. */
#include "base/mem.h"
#include "sandbox/exec/process.h"

enum { RECORDS_MAX = 8 << 20 };

struct process_query {
    struct stream *stream;
    struct buf records;
    process_query_fn done;
    void *ctx;
};

static void query_free(struct process_query *q)
{
    buf_fini(&q->records);
    mem_free(q);
}

static void process_list_on_reply(void *user, struct str head)
{
    struct process_query *q = user;
    if (head.n)
        stream_violation(q->stream, "a malformed head of PROCESSES");
}

static void process_list_on_data(void *user, uint8_t flags UNUSED, struct str bytes)
{
    struct process_query *q = user;
    (void)buf_append_str(&q->records, bytes); /* full: said at the end */
    stream_grant(q->stream, bytes.n, false);
}

static void process_list_on_end(void *user, struct str tail, const struct err *err)
{
    struct process_query *q = user;
    struct err local;
    if (!err && tail.n) {
        stream_violation(q->stream, "a malformed tail of PROCESSES");
        (void)err_set(&local, ERR_UNAVAILABLE, "the sandbox failed");
        err = &local;
    } else if (!err && buf_error(&q->records)) {
        (void)err_set(&local, ERR_RESOURCE_EXHAUSTED, "the list of processes is longer than %d MiB", RECORDS_MAX >> 20);
        err = &local;
    }
    q->done(q->ctx, err ? STR_NULL : buf_str(&q->records), err);
    query_free(q);
}

static const struct stream_ops ops = {
    .on_reply = process_list_on_reply, .on_data = process_list_on_data, .on_end = process_list_on_end};

int process_query(struct sandbox *sb, process_query_fn done, void *ctx, struct process_query **ret_query,
                  struct err *err)
{
    struct process_query *q = mem_new(struct process_query);
    *q = (struct process_query){.records = BUF_INIT(RECORDS_MAX), .done = done, .ctx = ctx};
    if (stream_open(sb->session, session_request(sb->session, WIRE_PROCESSES), &ops, q, SESSION_UNARY_MS, &q->stream,
                    err) < 0) {
        query_free(q);
        return -1;
    }
    *ret_query = q;
    return 0;
}

void process_query_cancel(struct process_query *q)
{
    stream_close(q->stream);
    query_free(q);
}

void process_query_lie(struct process_query *q)
{
    stream_violation(q->stream, "a malformed list of processes");
}

static uint32_t get_list(struct wire_reader *r, unsigned strings, struct wire_reader *ret_items)
{
    uint32_t n = wire_get_count(r, strings * sizeof(uint32_t));
    *ret_items = *r;
    for (uint32_t i = 0; i < n && !r->bad; i++)
        for (unsigned k = 0; k < strings; k++)
            (void)wire_get_str(r);
    return r->bad ? 0 : n;
}

bool process_record_next(struct wire_reader *r, struct process_record *p)
{
    if (r->bad || !r->n)
        return false;
    *p = (struct process_record){.pid = wire_get_u32(r)};
    p->flags = wire_get_u8(r);
    p->started = wire_get_u64(r);
    p->tag = wire_get_str(r);
    p->cmd = wire_get_str(r);
    p->n_args = get_list(r, 1, &p->args);
    p->n_envs = get_list(r, 2, &p->envs);
    p->cwd = wire_get_str(r);
    p->user = wire_get_str(r);
    p->output_bytes = wire_get_u64(r);
    p->seen = wire_get_u64(r);
    uint8_t how = wire_get_u8(r);
    (void)wire_get_u32(r);
    if (!p->pid || how > WIRE_SIGNALED || p->seen > p->output_bytes)
        r->bad = true;
    return !r->bad;
}

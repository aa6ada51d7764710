/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/exec/process.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"

enum { KEEP_ENDED_MS = 30000, KEEP_ENDED_MAX = 1024 };

struct process *process_new(struct sandbox *sb, uint64_t cause, struct str tag)
{
    struct process *p = mem_new(struct process);
    p->sb = sandbox_ref(sb);
    p->tag = tag.p ? mem_strndup(tag.p, tag.n) : NULL;
    p->started = clock_mono();
    list_init(&p->follows);
    list_prepend(&sb->processes, &p->node);
    exec_log_init(&p->log, sb, cause);
    return p;
}

void process_free(struct process *p)
{
    struct sandbox *sb = p->sb;
    assert(!p->client);
    loop_alarm_clear(sb->core->loop, &p->alarm);
    loop_alarm_clear(sb->core->loop, &p->pace);
    exec_log_fini(&p->log);
    while (!list_empty(&p->follows))
        list_remove(p->follows.next);
    list_remove(&p->node);
    sb->n_ended_processes -= p->ended;
    MEM_FREE(p->tag, p);
    sandbox_unref(sb);
}

struct process *process_find(struct sandbox *sb, const struct exec_select *which)
{
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        if (which->by_tag ? p->tag && str_eqc(which->tag, p->tag) : p->pid && p->pid == which->pid)
            return p;
    }
    return NULL;
}

static void on_forget_alarm(struct loop_alarm *alarm)
{
    process_free(container_of(alarm, struct process, alarm));
}

static void forget_oldest(struct sandbox *sb)
{
    for (struct list *it = sb->processes.prev; it != &sb->processes; it = it->prev) {
        struct process *p = container_of(it, struct process, node);
        if (p->ended) {
            process_free(p);
            return;
        }
    }
}

void process_ended(struct process *p, bool remember)
{
    struct sandbox *sb = p->sb;
    if (!remember || sb->core->closing || sandbox_state_is_over(sb->info.state)) {
        process_free(p);
        return;
    }
    exec_log_fini(&p->log);
    loop_alarm_clear(sb->core->loop, &p->pace);
    p->ended = true;
    loop_alarm_set(sb->core->loop, &p->alarm, clock_mono() + KEEP_ENDED_MS * USEC_PER_MS, on_forget_alarm);
    if (++sb->n_ended_processes > KEEP_ENDED_MAX)
        forget_oldest(sb);
}

void exec_sandbox_gone(struct sandbox *sb)
{
    exec_recover_stop(sb);
    /* Those that are still followed go with their streams. */
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        if (p->ended)
            process_free(p);
    }
}

static void on_deadline_alarm(struct loop_alarm *alarm)
{
    process_on_deadline(container_of(alarm, struct process, alarm));
}

void process_arm(struct process *p, usec_t at_mono)
{
    loop_alarm_set(p->sb->core->loop, &p->alarm, at_mono, on_deadline_alarm);
}

void exec_stand_still(struct sandbox *sb)
{
    usec_t now = clock_mono();
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        if (p->ended || !p->alarm.slot)
            continue;
        p->left = p->alarm.at > now ? p->alarm.at - now : 1;
        loop_alarm_clear(sb->core->loop, &p->alarm);
    }
}

void exec_go_on(struct sandbox *sb)
{
    usec_t now = clock_mono();
    LIST_FOREACH (struct process, p, &sb->processes, node) {
        if (!p->ended && p->left)
            process_arm(p, now + p->left);
        p->left = 0;
    }
}

/* ---- which one ---- */

void process_put_select(struct buf *b, const struct exec_select *which)
{
    wire_put_u8(b, which->by_tag);
    wire_put_u32(b, which->by_tag ? 0 : which->pid);
    wire_put_str(b, which->by_tag ? which->tag : STR_NULL);
}

void process_tell_select(struct event_data *d, const struct exec_select *which)
{
    if (which->by_tag)
        event_data_str(d, "tag", which->tag);
    else
        event_data_u64(d, "pid", which->pid);
}

int process_check_select(const struct exec_select *which, struct err *err)
{
    if (which->by_tag && (which->tag.n > 1024 || str_has_nul(which->tag)))
        return err_set(err, ERR_NOT_FOUND, "no process has such a tag");
    return 0;
}

/* ---- signals that nobody waits for ---- */

static void on_signalled(void *user UNUSED, struct str tail UNUSED, const struct err *err UNUSED)
{
}

static const struct stream_ops signal_ops = {.on_end = on_signalled};

void process_signal(struct process *p, int signal)
{
    struct stream *st;
    struct err err;
    if (!p->sb->session)
        return;
    struct buf *b = session_request(p->sb->session, WIRE_SIGNAL);
    process_put_select(b, &(struct exec_select){.pid = p->pid});
    wire_put_u32(b, (uint32_t)signal);
    (void)!stream_open(p->sb->session, b, &signal_ops, NULL, SESSION_UNARY_MS, &st, &err);
}

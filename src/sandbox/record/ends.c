/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends that the store would not take, because its disk is full or gone: nobody can be refused them, so they are
 * recorded as soon as it takes writes again. Only a worker that dies before that leaves the next one with "lost".
 *
 *  1. Every end is kept from before it is written until its batch is committed. `written`: it is in the batch that is
 *     open.
 *  2. A batch that is undone takes away what led to the end as well, whose seqs are given out again. Written later, its
 *     cause is the creation.
 *  3. A sandbox whose creation is not in the store has no end there.
 */
#include "base/mem.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

enum { ENDS_MAX = 1024 };

struct end {
    struct list node;   /* in core->ends, oldest first */
    struct sandbox *sb; /* a reference */
    struct event_draft draft;
    char *data; /* owned, of the draft */
    bool written;
};

static void end_free(struct end *e)
{
    struct sandbox *sb = e->sb;
    list_remove(&e->node);
    sb->core->n_ends--;
    MEM_FREE(e->data, e);
    sandbox_unref(sb);
}

static void on_committed(void *ctx)
{
    struct core *core = ctx;
    LIST_FOREACH (struct end, e, &core->ends, node) {
        if (e->written)
            end_free(e);
    }
}

static void on_rolled_back(void *ctx)
{
    struct core *core = ctx;
    LIST_FOREACH (struct end, e, &core->ends, node)
        e->written = false;
}

uint64_t sandbox_move_to_end(struct sandbox *sb, enum sandbox_state to, const struct event_draft *event)
{
    struct core *core = sb->core;
    if (!sb->stored)
        return sandbox_move(sb, to, event);
    struct end *oldest = LIST_FIRST(struct end, &core->ends, node);
    if (oldest && core->n_ends >= ENDS_MAX)
        end_free(oldest);
    struct end *e = mem_new(struct end);
    *e = (struct end){.sb = sandbox_ref(sb), .draft = *event, .written = true};
    e->data = mem_strndup(event->data.p, event->data.n);
    e->draft.sandbox = sb->info.id;
    e->draft.data = str_n(e->data, event->data.n);
    e->draft.actor = STR_NULL;
    e->draft.cause = sb->create_seq;
    e->draft.time = sb->info.ended;
    list_append(&core->ends, &e->node);
    core->n_ends++;
    uint64_t seq = sandbox_move(sb, to, event);
    e->written = e->written && seq != 0;
    return seq;
}

void ends_write(struct core *core)
{
    LIST_FOREACH (struct end, e, &core->ends, node) {
        struct err err;
        if (e->written)
            continue;
        if (event_append(core->config.events, &e->draft, NULL, &err) < 0)
            return; /* one is enough to know */
        e->written = true;
        rows_ended(e->sb);
    }
}

void ends_open(struct core *core)
{
    list_init(&core->ends);
    core->ends_hook = (struct store_hook){.committed = on_committed, .rolled_back = on_rolled_back, .ctx = core};
    store_hook_add(core->config.store, &core->ends_hook);
}

void ends_close(struct core *core)
{
    store_hook_remove(&core->ends_hook);
    LIST_FOREACH (struct end, e, &core->ends, node)
        end_free(e);
}

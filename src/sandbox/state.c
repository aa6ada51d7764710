/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. `moves` is all there is: a move that it does not list is a bug of ours and aborts.
 *  2. Every move is one event, appended in the same batch as the row's new state, so log and table never differ after a
 *     crash.
 *  3. creating -> running at the end of its start (start.c); any living state -> stopping as soon as somebody decides
 *     that it ends (from then on nobody can use it); stopping -> ended or failed when coved says that all of it is
 *     gone. A sandbox that ends on its own is stopping only while who waits for it is told, without an event; one that
 *     is found lost by a new worker skips it. Nothing leaves ended and failed. running -> pausing -> paused -> resuming
 *     -> running, each told by an action or by what came of it; a pause or a resume that fails goes back where it came
 *     from (pause.c).
 *  4. The numbers of the states stand in the store: never renumber.
 */
#include "sandbox/object.h"
#include "sandbox/record/record.h"

#define TO(state) (1u << (state))

static const struct {
    const char *name;
    unsigned to;
} moves[] = {
    [SANDBOX_CREATING] = {"creating", TO(SANDBOX_RUNNING) | TO(SANDBOX_STOPPING) | TO(SANDBOX_FAILED)},
    [SANDBOX_RUNNING] = {"running",
                         TO(SANDBOX_PAUSING) | TO(SANDBOX_STOPPING) | TO(SANDBOX_ENDED) | TO(SANDBOX_FAILED)},
    [SANDBOX_PAUSING] = {"pausing", TO(SANDBOX_PAUSED) | TO(SANDBOX_RUNNING) | TO(SANDBOX_STOPPING) |
                                        TO(SANDBOX_ENDED) | TO(SANDBOX_FAILED)},
    [SANDBOX_PAUSED] = {"paused", TO(SANDBOX_RESUMING) | TO(SANDBOX_STOPPING) | TO(SANDBOX_ENDED) | TO(SANDBOX_FAILED)},
    [SANDBOX_RESUMING] = {"resuming", TO(SANDBOX_RUNNING) | TO(SANDBOX_PAUSED) | TO(SANDBOX_STOPPING) |
                                          TO(SANDBOX_ENDED) | TO(SANDBOX_FAILED)},
    [SANDBOX_STOPPING] = {"stopping", TO(SANDBOX_ENDED) | TO(SANDBOX_FAILED)},
    [SANDBOX_ENDED] = {"ended", 0},
    [SANDBOX_FAILED] = {"failed", 0},
};

const char *sandbox_state_name(enum sandbox_state state)
{
    return (unsigned)state < ARRAY_SIZE(moves) ? moves[state].name : "unknown";
}

bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to)
{
    return (unsigned)from < ARRAY_SIZE(moves) && (moves[from].to & TO(to));
}

bool sandbox_state_is_over(enum sandbox_state state)
{
    return state == SANDBOX_STOPPING || state == SANDBOX_ENDED || state == SANDBOX_FAILED;
}

uint64_t sandbox_move(struct sandbox *sb, enum sandbox_state to, const struct event_draft *event)
{
    assert(sandbox_state_may(sb->info.state, to));
    if (!list_empty(&sb->node))
        sb->core->n_paused += (size_t)(to == SANDBOX_PAUSED) - (size_t)(sb->info.state == SANDBOX_PAUSED);
    sb->info.state = to;
    uint64_t seq = 0;
    struct event_draft draft = *event;
    struct err err;
    draft.sandbox = sb->info.id;
    if (draft.kind != EVENT_KIND_UNKNOWN && event_append(sb->core->config.events, &draft, &seq, &err) < 0)
        core_unrecorded(sb->core, &err);
    if (to == SANDBOX_ENDED || to == SANDBOX_FAILED)
        rows_ended(sb);
    else
        rows_state(sb);
    return seq;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pausing and resuming.
 *
 * To disk, on tiers that can: its memory is written beside its files, and goes on from there, after the service or the
 * machine was started anew, too; what clients have open ends.
 *
 * With memory: its processes stand still where they are, and go on there; connections inside, terminals and what
 * clients have open stay. Without: its processes end (cause "paused"), its files stay, and resuming starts it anew,
 * with a new boot id. A sandbox that is paused with memory when the service stops or dies is one that was paused
 * without when it is back.
 *
 * What waits for the sandbox waits no shorter for it: deadlines of processes count the time that it runs, a client's
 * own (of an attached one) go on.
 *
 * While paused: it is listed, has no deadline (it is kept until somebody kills it), and counts for no limit of running
 * sandboxes; every other operation answers ERR_FAILED_PRECONDITION.
 */
#pragma once

#include "sandbox/sandbox.h"

/*
 * ERR_FAILED_PRECONDITION at once: it is paused, or on its way there or back. done: when it is paused (sb), or why it
 * is not; it runs then, unless it has ended.
 */
int sandbox_pause(struct sandbox *sb, const struct actor *actor, bool memory, sandbox_fn done, void *ctx,
                  struct err *err) WARN_UNUSED;

/* The same with its memory on disk. ERR_UNIMPLEMENTED: its tier can't, and which can. */
int sandbox_pause_to_disk(struct sandbox *sb, const struct actor *actor, sandbox_fn done, void *ctx,
                          struct err *err) WARN_UNUSED;

struct sandbox_resume {
    bool has_timeout;
    uint64_t timeout_ms; /* counted from its start; 0: never ends by itself. Without one: the last one it got */
    bool cold;           /* discards its memory, if it has any: a new start on its files */
};

/*
 * done: when it runs again and its agent answers. One that is being resumed already: done comes with that.
 * ERR_FAILED_PRECONDITION: it runs, or is being paused.
 */
int sandbox_resume(struct sandbox *sb, const struct actor *actor, const struct sandbox_resume *how, sandbox_fn done,
                   void *ctx, struct err *err) WARN_UNUSED;

/*
 * For requests that came by traffic: fn is called in a later turn when the sandbox runs (err NULL), or can't any more.
 * A paused one whose auto_resume is set is resumed for it, for its last timeout and 300 s at least. At most 1,024 wait
 * for one sandbox (ERR_RESOURCE_EXHAUSTED). ERR_FAILED_PRECONDITION: it is paused and stays so. Embed the struct; take
 * it back with sandbox_unwake() before its memory goes.
 */
struct sandbox_wake {
    struct list node;
    void (*fn)(struct sandbox_wake *w, struct sandbox *sb, const struct err *err);
};
int sandbox_wake(struct sandbox *sb, const struct actor *actor, struct sandbox_wake *w, struct err *err) WARN_UNUSED;
void sandbox_unwake(struct sandbox_wake *w);
bool sandbox_can_wake(const struct sandbox *sb); /* runs, or would by sandbox_wake() */

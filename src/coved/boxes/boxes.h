/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of sandboxes, and of the boxes that wait to become one: blank ones, and warm ones in which the agent runs
 * already on top of the layer, and with the limits, that were asked for last.
 *
 * Boxes that are somebody's outlive coved: they are the keeper's children (coved/workers/keeper.h), and recorded there
 * (boxes_adopt.c).
 *
 * Invariants
 *  1. A slot (and with it a range of 65,536 host ids, and a control group) is free again only when its last process was
 *     reaped, its group removed and its files moved to the trash.
 *  2. What was a sandbox of somebody is never anybody else's.
 *  3. SIGKILL to the first process of a pid namespace is the only way in which a box ends by our hand.
 *  4. Each request is answered exactly once; each box that was created is reported ended exactly once.
 *  5. What is done to one sandbox is done one after the other, in the order in which it was asked for (boxes_task.c); a
 *     kill waits for nothing.
 */
#pragma once

#include "base/err.h"
#include "coved/loop.h"
#include "tier/tier.h"
#include "wire/supervisor.h"

struct boxes;
struct filewatch;
struct jobs;
struct coved_network;
struct procwatch;
struct records;

/* What came of a snapshot. */
struct stored {
    usec_t frozen, total;
    uint64_t bytes; /* of the layer; 0: not known */
    bool is_unchanged;
};

/* `asked`, never 0, is the caller's and comes back with the answer. */
struct boxes_events {
    void *ctx;
    /* The answer to boxes_create(): session_fd is the callee's on success, -1 and err set otherwise. */
    void (*created)(void *ctx, uint64_t asked, int session_fd, const struct err *err);
    void (*done)(void *ctx, uint64_t asked, const struct err *err); /* the answer to most others; err NULL: success */
    void (*stored)(void *ctx, uint64_t asked, const struct stored *made, const struct err *err); /* boxes_snapshot() */
    void (*ended)(void *ctx, const struct sup_ended *ended);
    /* boxes_watch(). False: nobody could take it by now, so it was not even read. */
    void (*seen)(void *ctx, const struct sup_seen *seen, size_t n); /* a message of so many bytes */
    bool (*sees)(void *ctx);                                        /* somebody has room for more of that */
};

/*
 * Everything passed is borrowed. ready: how many boxes of the first tier to keep ahead of need. network->maker, if it
 * is there, gives each box a namespace, without which none is made.
 */
struct boxes *boxes_new(struct coved_loop *loop, const struct tier_set *set, const struct tier_host *host,
                        uint32_t ready, const struct boxes_events *events, struct coved_network *network,
                        struct jobs *jobs, struct records *records);
void boxes_free(struct boxes *b); /* after boxes_shutdown() came to its end */

/*
 * Of those whose files are kept, once, before anybody asks. Fails when they can't be listed: who is told of none takes
 * them for lost.
 */
int boxes_keep_load(struct boxes *b, struct err *err) WARN_UNUSED;

/*
 * Of those that an earlier coved left with the keeper, once, before the first tick: they are sandboxes again. The other
 * two tell before that whether a control group, or a box in the pool, is one of theirs.
 */
void boxes_adopt(struct boxes *b);
bool boxes_left_group(struct records *records, const char *group);
bool boxes_left_name(struct records *records, const char *name);

/*
 * At the start, before pool_reset(): files of sandboxes that stood still when an earlier coved died are kept, unless
 * `spares`, which is asked for the box in the pool, says that they are still somebody's. Fails when it can't be known
 * whose they are: pool_reset() would delete them.
 */
int boxes_rescue(const struct tier_host *host, bool (*spares)(void *ctx, const char *name), void *ctx,
                 struct err *err) WARN_UNUSED;

/*
 * is_again, here and below: it may have been asked for before, of a coved that died over it. What that one did is not
 * done twice; what it began was undone.
 */
void boxes_create(struct boxes *b, uint64_t asked, const struct sup_create *request, uint32_t default_pids,
                  bool is_again);
/* Who asked is gone: nobody waits for sandboxes that are not there yet, or wants some ready. */
void boxes_forget(struct boxes *b);

/* As SUP_WARM says. ERR_RESOURCE_EXHAUSTED, ERR_NOT_FOUND. */
int boxes_want(struct boxes *b, const struct sup_warm *m, uint32_t default_pids, struct err *err) WARN_UNUSED;
int boxes_kill(struct boxes *b, const char *id, struct err *err) WARN_UNUSED;

/*
 * Answered by done(). With memory: its processes stand still. ERR_DEADLINE_EXCEEDED: they can't be stopped where they
 * are, and go on. Without: they end, which is not reported, and its files are kept. To disk: the same, with its memory
 * beside them. ERR_UNIMPLEMENTED: its tier can't.
 */
void boxes_pause(struct boxes *b, uint64_t asked, const char *id, enum sup_pause_kind kind, bool is_again);
void boxes_resume(struct boxes *b, uint64_t asked, const char *id);

/* Answered by stored(). Running, frozen or kept, it is afterwards what it was. */
void boxes_snapshot(struct boxes *b, uint64_t asked, const struct sup_snapshot *m, bool is_again);
/* Answered by done(). Of one that is kept, and stays so. */
void boxes_rewind(struct boxes *b, uint64_t asked, const char *id, const char *layer);

int boxes_attach(struct boxes *b, const char *id, int *ret_session_fd, struct err *err) WARN_UNUSED;
int boxes_usage(struct boxes *b, const char *id, struct sup_used *ret_used, struct err *err) WARN_UNUSED;
void boxes_each(struct boxes *b, void (*fn)(void *ctx, const char *id, usec_t started, enum sup_life life), void *ctx);
void boxes_each_network(struct boxes *b, void (*fn)(void *ctx, const char *id, const struct netns *net), void *ctx);

/* Answered by done(). ERR_INVALID_ARGUMENT (the path), ERR_NOT_FOUND, ERR_FAILED_PRECONDITION (paused; what the path
 * leads to). */
void boxes_mount(struct boxes *b, uint64_t asked, const struct sup_volume_mount *m);
/* The same; takes the descriptor. ERR_UNIMPLEMENTED: not in its tier. */
void boxes_nest(struct boxes *b, uint64_t asked, const struct sup_nest *m, int session_fd);
bool boxes_mounted(struct boxes *b, const char *volume, char ret_id[static ID_SANDBOX_LEN + 1]);

/* Where the files of a sandbox are. */
struct boxes_files {
    char box[TIER_NAME_MAX];        /* in the pool; "": it has none */
    char kept[ID_SANDBOX_LEN + 1];  /* the same */
    char stands_on[SUP_DIGEST_MAX]; /* the topmost layer below */
};
int boxes_files(struct boxes *b, const char *id, struct boxes_files *ret_files, struct err *err) WARN_UNUSED;

/* For each sandbox, the layer directly below its own files. */
void boxes_each_standing(struct boxes *b, void (*fn)(void *ctx, const char *layer), void *ctx);
/* Whether a sandbox, one that is being made, or something under way needs that layer; ret_id: of one of these, or
 * "". */
bool boxes_stands(struct boxes *b, const char *layer, char ret_id[static ID_SANDBOX_LEN + 1]);
void boxes_drop_unused(struct boxes *b, const char *layer); /* ends those that wait for somebody above it */

size_t boxes_running(const struct boxes *b);

/*
 * Reports through seen() what these watches see sandboxes' processes do. Owned; NULL: none. Call it before
 * boxes_adopt(). boxes_seen.c.
 */
int boxes_watch(struct boxes *b, struct procwatch *processes, struct filewatch *files) WARN_UNUSED;

/* Once after every turn of the loop. idle: nothing was ready, so there is time to work ahead. Returns when it wants to
 * be called again. */
usec_t boxes_tick(struct boxes *b, bool idle);

/* Kills all; the files of those that are paused are kept, and no end of theirs is reported. Done when boxes_left() is
 * 0. */
void boxes_shutdown(struct boxes *b);
size_t boxes_left(const struct boxes *b);

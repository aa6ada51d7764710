/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that boxes.h is made of: boxes.c (lives of boxes), boxes_ahead.c (what is made ahead of need), boxes_look.c (what is told of them),
 * boxes_task.c (what is asked to be done to a sandbox), boxes_pause.c (freezing), boxes_store.c (snapshots), boxes_keep.c (files without a box).
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "coved/boxes.h"
#include "wire/control.h"

enum box_state {
    BOX_MAKING,   /* its body sets itself up */
    BOX_BLANK,    /* ready for any layer */
    BOX_DRESSING, /* gets a root and the agent; perhaps for a request that waits */
    BOX_WARM,     /* the agent runs, nobody's */
    BOX_RUNNING,  /* somebody's */
    BOX_FROZEN,   /* the same, paused with its memory */
    BOX_CLEANING, /* reaped, not yet all gone */
    BOX_STATES,
};

struct waiting {
    struct list node;
    struct sup_create request;
    uint64_t asked;
    struct cgroup_limits limits;
    bool again; /* the warm box that it was given had died */
};

enum task_kind {
    TASK_PAUSE, /* freeze and leave so */
    TASK_RESUME,
    TASK_KINDS
};

/* Something that was asked to be done to a sandbox. One after the other: the first of its entry's list is under way. */
struct task {
    struct list node;
    struct boxes *owner;
    struct entry *entry;
    enum task_kind kind;
    uint64_t asked; /* 0: nobody waits for the end of it */
};

struct entry {
    struct list node; /* in the list of its state */
    struct boxes *owner;
    struct box box;
    enum box_state state;
    struct source sock, pidfd;
    char layer[SUP_DIGEST_MAX]; /* that it is dressed in */
    struct waiting *request;    /* owned; while it is being dressed for somebody */
    char id[ID_SANDBOX_LEN + 1];
    char template_id[CONTROL_TEMPLATE_MAX];
    usec_t started;    /* real time */
    usec_t warm_since; /* monotonic */
    struct sup_ended ended;
    char reason[TIER_MESSAGE_MAX]; /* why the body failed */

    struct list tasks;
    size_t n_tasks;

    struct list freezing; /* in boxes.freezing while it is waited for */
    bool is_held;         /* its group was told to stand still */
    usec_t freeze_since, look_at, look_usec;
};

struct boxes {
    struct loop *loop;
    const struct tier *tier;
    const struct tier_host *host;
    struct boxes_events events;
    struct network *network;
    uint32_t ready_wanted;
    struct list lists[BOX_STATES];
    size_t counts[BOX_STATES];
    struct list waiting;
    size_t n_waiting;
    struct map by_id;
    bool slot_used[SUP_SANDBOXES_MAX];
    uint32_t next_slot;
    char last_layer[SUP_DIGEST_MAX]; /* what the last one that was made was, and the next probably is; "": none */
    struct cgroup_limits last_limits;
    usec_t last_create;        /* monotonic */
    usec_t clean_at, ahead_at; /* monotonic; 0: none. ahead_at: after a failure, no work ahead before */
    bool stopping;
    struct list freezing;
};

/* ---- boxes.c ---- */

void boxes_enter(struct entry *e, enum box_state state);
void boxes_kill_body(struct entry *e);
void boxes_refuse_waiting(struct boxes *b, const struct err *err);
void boxes_clean_again(struct boxes *b);
struct entry *boxes_find(struct boxes *b, const char *id, struct err *err); /* NULL: ERR_NOT_FOUND */

/* Begins a new box. 1: not yet, there is no network for it; the loop turns when there is. On failure it is on its way out already. */
int boxes_make_blank(struct boxes *b, struct err *err) WARN_UNUSED;

/* Gives a blank a root on this layer. When it fails and the box has left BOX_BLANK, kill it. */
int boxes_dress(struct entry *e, const char *layer, const struct cgroup_limits *limits, struct err *err) WARN_UNUSED;

/* ---- boxes_task.c ---- */

/* Refused at once, or under way, or behind those that are. */
void boxes_task_add(struct boxes *b, const char *id, const struct task *task);
void boxes_task_end(struct task *t, const struct err *err); /* err NULL: success. Answers, and begins the next one */
void boxes_tasks_abort(struct entry *e, const struct err *err);

/* ---- boxes_pause.c ---- */

/* boxes_frozen() is called with the first task of the entry, now or later: 0, -ETIMEDOUT, or another -errno; on failure it is thawed already. */
void boxes_freeze(struct entry *e);
void boxes_frozen(struct entry *e, int r); /* of boxes_task.c */
void boxes_thaw(struct entry *e);
usec_t boxes_watch_freezing(struct boxes *b);
void boxes_pause_begin(struct task *t);
void boxes_resume_begin(struct task *t);
void boxes_pause_frozen(struct task *t, int r);

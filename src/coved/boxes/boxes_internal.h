/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that boxes.h is made of: boxes.c (lives of boxes), boxes_end.c (their ends), boxes_ahead.c (what
 * is made ahead of need), boxes_look.c (what is told of them), boxes_task.c (what is asked to be done to a sandbox),
 * boxes_pause.c (freezing), boxes_store.c (snapshots), boxes_keep.c (files without a box), boxes_adopt.c (what outlives
 * coved), boxes_save.c (memory on disk), boxes_note.c (what outlives all processes), boxes_volume.c (volumes that are
 * mounted), boxes_nest.c (namespaces within), boxes_memory.c (when memory is short).
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "coved/boxes/boxes.h"
#include "coved/storage/unread.h"
#include "wire/control.h"

enum box_state {
    BOX_MAKING,   /* its body sets itself up */
    BOX_BLANK,    /* ready for any layer */
    BOX_DRESSING, /* gets a root and the agent; perhaps for a request that waits */
    BOX_WARM,     /* the agent runs; not given to anybody yet */
    BOX_RUNNING,  /* somebody's */
    BOX_FROZEN,   /* the same, paused with its memory */
    BOX_CLEANING, /* reaped, not yet all gone */
    BOX_STATES,
};

/* What a box is dressed as. */
struct outfit {
    const struct tier *tier;
    char layer[SUP_DIGEST_MAX]; /* "": the files that are kept of the sandbox */
    struct tier_limits limits;
    uint64_t disk_bytes;
    bool memory; /* it goes on from what is saved with the layer, or with the files */
    bool awaits; /* memory that isn't there yet: of a fork of what stands on the layer */
};

struct waiting {
    struct list node;
    struct sup_create request;
    uint64_t asked;
    struct outfit outfit;
    bool again; /* the warm box that it was given had died */
};

enum { TASKS_MAX = 16, MOUNTS_MAX = 16 }; /* of one sandbox */

enum task_kind {
    TASK_PAUSE, /* freeze and leave so */
    TASK_RESUME,
    TASK_STOP, /* kill and keep the files */
    TASK_SNAPSHOT,
    TASK_REWIND, /* of one that is kept */
    TASK_MOUNT,
    TASK_NEST,
    TASK_SAVE,  /* memory to disk; then it is a TASK_STOP */
    TASK_GO_ON, /* after that failed */
    TASK_KINDS
};

/* Of boxes_volume.c. */
struct mount_order {
    char volume[SUP_VOLUME_MAX], path[SUP_PATH_MAX], source[SUP_PATH_MAX];
    struct tier_mount how; /* with these texts */
    struct mounted *mounted;
};

/* Of boxes_nest.c. */
struct nest_order {
    struct sup_nest asked;
    struct tier_nest how;
    char group[TIER_GROUP_MAX], box[TIER_NAME_MAX], stands_on[SUP_DIGEST_MAX]; /* its texts */
    int session_fd;                                                            /* owned; foreign */
};

/*
 * Something that was asked to be done to a sandbox. One after the other: the first of its entry's list is under way. A
 * task whose job runs outlives its entry, in boxes.loose: entry is NULL then. Those that are about files that are kept
 * never have one.
 */
struct task {
    struct list node;
    struct boxes *owner;
    struct box_entry *entry;
    struct kept *kept; /* held busy by it; NULL: none */
    enum task_kind kind;
    const struct tier *tier; /* of its entry; NULL: it never had one */
    uint64_t asked;          /* 0: nobody waits for the end of it */
    struct job *job;
    bool passes;        /* TASK_SNAPSHOT: SUP_MEMORY_PASSES */
    bool memory;        /* TASK_SNAPSHOT: with it. TASK_STOP: what is saved under its id is of this moment */
    bool is_early;      /* TASK_STOP: of one that may return. What is saved of its memory stays as it is */
    bool gone, aborted; /* gone: its job works, and can't be stopped half-way. aborted: what it makes is thrown away */
    int failed;         /* -errno, found out before the job was let go */
    unsigned tries;     /* TASK_STOP: jobs that failed */
    usec_t again_at;    /* monotonic: the next one; 0: none */
    char id[ID_SANDBOX_LEN + 1];
    char box[TIER_NAME_MAX];        /* in the pool */
    char stands_on[SUP_DIGEST_MAX]; /* the topmost layer below that */
    char layer[SUP_DIGEST_MAX];     /* TASK_SNAPSHOT: what is made; TASK_REWIND: what is gone back to */
    char unlike[SUP_DIGEST_MAX];    /* TASK_SNAPSHOT: struct sup_snapshot's */
    bool is_unchanged;
    uint64_t layer_bytes;            /* of that; 0: not known */
    struct mount_order *mount;       /* owned; TASK_MOUNT */
    struct nest_order *nest;         /* owned; TASK_NEST */
    usec_t begun, froze, frozen_for; /* monotonic; froze 0: it stood still before */
};

/* The files of a sandbox that is paused without memory, or is on its way there or back. */
struct kept {
    struct boxes *owner;
    char id[ID_SANDBOX_LEN + 1];
    char stands_on[SUP_DIGEST_MAX];
    size_t busy;   /* who is at it: until that is 0 it stays */
    bool is_whole; /* under its name in the pool */
    bool has_memory;
    bool is_doomed; /* killed: it goes when nobody is at it */
};

/* In the background: the files of a frozen sandbox as they would be kept, should its memory be lost. */
struct box_copy {
    struct boxes *owner;
    struct box_entry *entry; /* NULL: it ended meanwhile */
    struct task *next;       /* TASK_STOP, which waits for the end of this */
    bool is_stale;           /* its processes have run since */
    char id[ID_SANDBOX_LEN + 1];
    char box[TIER_NAME_MAX];
    char stands_on[SUP_DIGEST_MAX];
};

struct box_entry {
    struct list node; /* in the list of its state */
    struct boxes *owner;
    const struct tier *tier;
    struct box box;
    enum box_state state;
    struct source sock, pidfd;
    struct outfit outfit;           /* that it is dressed in */
    char stands_on[SUP_DIGEST_MAX]; /* the topmost layer below its own files */
    struct waiting *request;        /* owned; while it is being dressed for somebody */
    struct kept *kept;              /* held busy: it has their files, and nobody runs on them yet */
    char id[ID_SANDBOX_LEN + 1];
    char template_id[CONTROL_TEMPLATE_MAX];
    usec_t started;    /* real time */
    usec_t warm_since; /* monotonic */
    struct sup_ended ended;
    char reason[TIER_MESSAGE_MAX]; /* why the body failed */
    uint16_t reason_errno;

    struct list tasks;
    size_t n_tasks;

    struct list mounted; /* volumes */
    size_t n_mounted;

    struct list freezing; /* in boxes.freezing while it is waited for */
    bool is_held;         /* its group was told to freeze */
    usec_t freeze_since, look_at, look_usec;

    struct list to_copy; /* in boxes.to_copy while it waits for that */
    usec_t copy_at;
    struct box_copy *copy; /* under way */
    bool has_copy;
    bool is_silent; /* no end is reported: its files are kept */
    bool is_recorded;
    bool may_return; /* it came of kept files, and nobody has said yet that its start is done: boxes_keep.c, rule 2 */
    bool is_saving;  /* it may stand still by its tier's means */
    bool stops_jobs; /* one that went inside, or saved its memory, did not end in time */

    struct giving *giving; /* its memory is being taken; it stands still */
    bool has_given;        /* since it was paused */
    ino_t process_ns;      /* watched; 0: not */
    usec_t
        files_since; /* files that it wrote are told of one by one, SUP_SEEN_PER_SEC of them; the others are counted */
    uint32_t files_told;
    uint32_t n_terminals;  /* at the last look, when they were short */
    uint32_t unread_round; /* of the boxes, in which what it has not read was looked at */
};

enum { NOTE_BOOT_MAX = 40 };

enum { SEEN_EXECS = 256 };

/* Of boxes_seen.c: what the kernel tells of one kind. */
struct sight {
    struct source source;
    usec_t again_at; /* monotonic: it is listened to again; 0: it is */
};

struct notes {
    int fd; /* their directory in the pool; -1: there is none */
    char boot[NOTE_BOOT_MAX];
};

struct boxes {
    struct coved_loop *loop;
    const struct tier_set *set;
    const struct tier_host *host;
    struct boxes_events events;
    struct coved_network *network;
    struct records *records;
    uint32_t ready_wanted;
    struct list lists[BOX_STATES];
    size_t counts[BOX_STATES];
    struct list waiting;
    size_t n_waiting;
    struct map by_id;
    bool slot_used[SUP_SANDBOXES_MAX];
    uint32_t next_slot;
    char forked[SUP_DIGEST_MAX];
    uint32_t n_forks;          /* that were made of the layer `forked`, as nobody will again */
    struct outfit last;        /* what the last one that was made was, and the next probably is; layer "": none */
    usec_t last_create;        /* monotonic */
    usec_t clean_at, ahead_at; /* monotonic; 0: none. ahead_at: after a failure, no work ahead before */
    unsigned n_failed;         /* in a row, of what is made ahead */
    bool stopping;
    struct list freezing, to_copy;
    struct jobs *jobs;
    struct list loose;                 /* tasks without an entry */
    size_t n_loose, n_copies, n_again; /* n_again: of the loose ones, those that wait for their next try */
    struct map kept;
    struct map making; /* name of a layer -> struct task that makes it, or waits to */
    struct notes notes;
    struct procwatch *procwatch; /* owned; NULL: processes are not watched */
    struct filewatch *filewatch; /* the same of files */
    struct sight processes, files;
    union {
        struct sup_seen first;
        char bytes[SUP_SEEN_MESSAGE];
    } seen;                    /* what is told next, in part */
    size_t n_seen;             /* bytes of it */
    struct box_entry *more_of; /* until the end of a reading: whose files are to be counted */
    uint32_t n_more;
    usec_t seen_epoch;               /* clock_mono()'s zero by the real clock */
    usec_t files_lost_at;            /* when all were told that files are missing */
    bool files_lost;                 /* more are since then */
    uint16_t seen_execs[SEEN_EXECS]; /* where in it the last program of a host_pid is (modulo): boxes_seen.c */
    struct map by_name;              /* of boxes in the pool -> struct box_entry, as long as they are somebody's */
    struct map wants;                /* layer -> struct want of boxes_ahead.c */
    uint32_t n_wanted;
    size_t n_doomed;
    size_t n_giving;
    usec_t memory_at; /* monotonic: how much memory there is is looked at again */
    bool is_short;    /* as it was found last */
    struct unread_watch unread;
    uint32_t unread_round;
    struct unread_bounds unread_bounds; /* of that round */
    struct unread_pools unread_pools;   /* as they were found last */
    bool has_locker;                    /* some group has set too many locks of files: */
    char locker[UNREAD_GROUP_MAX];      /* unread.h */
    bool is_looking;                    /* the round is not over */
};

/* ---- boxes.c ---- */

void boxes_enter(struct box_entry *e, enum box_state state);
void boxes_refuse(struct boxes *b, struct waiting *w, const struct err *err); /* takes w */
void boxes_wait_again(struct boxes *b, struct waiting *w); /* takes w, whose box has died; the first to be served */
void boxes_refuse_waiting(struct boxes *b, const struct tier *tier, const struct err *err); /* NULL: of all */
struct box_entry *boxes_find(struct boxes *b, const char *id, struct err *err);             /* NULL: ERR_NOT_FOUND */

/*
 * Begins a new box of that tier. 1: not yet, because no network is ready; the loop turns when one is. On failure the
 * box is already being removed.
 */
int boxes_make_blank(struct boxes *b, const struct tier *tier, struct err *err) WARN_UNUSED;

/* Gives a blank a root; kept: of these files, or NULL. When it fails and the box has left BOX_BLANK, kill it. */
int boxes_dress(struct box_entry *e, const struct outfit *outfit, struct kept *kept, struct err *err) WARN_UNUSED;
struct box_entry *boxes_find_blank(struct boxes *b, const struct tier *tier); /* NULL: none */
bool boxes_body_is_gone(const struct box_entry *e); /* it has ended by itself, and the loop hears of it next */
bool boxes_body_dies(const struct box_entry *e);    /* the same, or it is about to */
bool boxes_is_alike(const struct outfit *o,
                    const struct outfit *like); /* who asks for the latter may have the former */
void boxes_serve(struct boxes *b);              /* serves those who wait, in order, with what there is */

struct box_entry *boxes_entry_new(struct boxes *b, const struct tier *tier, uint32_t slot,
                                  enum box_state state); /* without anything yet; in the list of its state */

/* ---- boxes_seen.c ---- */

void boxes_seen_begin(struct box_entry *e); /* it is somebody's */
void boxes_seen_again(struct box_entry *e); /* it was before: something was missed */
void boxes_seen_end(struct box_entry *e);   /* its processes are gone: reports what is left */
usec_t boxes_seen_tick(struct boxes *b);
void boxes_seen_files_lost(struct boxes *b); /* the kernel had no room for some */
void boxes_seen_close(struct boxes *b);

/* ---- boxes_adopt.c ---- */

/*
 * Records what the next coved must know of it: before anybody hears of the change, and before anything is begun that
 * adds to it.
 */
void boxes_record(struct box_entry *e);
void boxes_unrecord(struct box_entry *e); /* it has ended, and that was reported */

/* ---- boxes_end.c ---- */

void boxes_kill_body(struct box_entry *e);
void boxes_kill_unused(struct box_entry *e);            /* not given to anybody, and not to be */
void boxes_on_pidfd(struct source *s, uint32_t events); /* it is to be reaped */
void boxes_clean(struct box_entry *e);                  /* it was: gone, now or a little later */
void boxes_clean_again(struct boxes *b);

/* ---- boxes_task.c ---- */

/* Refused at once, or under way, or behind those that are. */
void boxes_task_add(struct boxes *b, const char *id, const struct task *task);
void boxes_task_then(struct box_entry *e, enum task_kind kind); /* nobody asked for it: behind those that there are */
struct task *boxes_task_stop(struct box_entry *e);          /* TASK_STOP that nobody asked for; it has no other task */
void boxes_task_end(struct task *t, const struct err *err); /* err NULL: success. Answers, and begins the next one */
void boxes_tasks_abort(struct box_entry *e, const struct err *err);
bool boxes_is_stopping(const struct box_entry *e);
struct task *boxes_task_loosen(struct task *t); /* its entry ends before it */
struct task *boxes_task_loose(struct boxes *b, const struct task *task);

/* ---- boxes_pause.c ---- */

/* boxes_frozen() is called with the first task of the entry, now or later: 0, -ETIMEDOUT, or another -errno; on failure
 * it is thawed already. */
void boxes_freeze(struct box_entry *e);
void boxes_frozen(struct box_entry *e, int r); /* of boxes_task.c */
void boxes_thaw(struct box_entry *e);
void boxes_yield_memory(struct box_entry *e, bool first); /* when memory is short, its own goes first */
usec_t boxes_watch_freezing(struct boxes *b);
void boxes_pause_begin(struct task *t);
void boxes_resume_begin(struct task *t);
void boxes_pause_frozen(struct task *t, int r);
int boxes_freeze_error(const struct box_entry *e, int r, struct err *err);

/* ---- boxes_memory.c ---- */

usec_t boxes_memory_tick(struct boxes *b);
uint64_t boxes_memory_usage(struct box_entry *e); /* bytes; 0: not known */
void boxes_terminals_look(struct boxes *b);       /* boxes_terminals.c: once a second */
void boxes_memory_stays(struct box_entry *e);     /* it is going to run, or has ended */

/* ---- boxes_ahead.c ---- */

void boxes_forget_wants(struct boxes *b);
void boxes_ahead_failed(struct boxes *b, const struct err *err); /* says so; the next try has to wait */
void boxes_ahead_is_needed(struct boxes *b);                     /* but not long, as somebody waits */

/* ---- boxes_store.c ---- */

void boxes_snapshot_begin(struct task *t);
void boxes_snapshot_frozen(struct task *t, int r);

/* ---- boxes_save.c ---- */

void boxes_save_begin(struct task *t);
void boxes_go_on_begin(struct task *t);
/* A job: with its files, for a TASK_SNAPSHOT. done() has the task as its context, and calls the next one if the box
 * lives and stays. */
void boxes_save_start(struct task *t, void (*done)(void *ctx, int r));
void boxes_save_over(struct box_entry *e, int r);
int boxes_save_error(const struct task *t, int r, struct err *err);
/* What a box that is to wear it goes on from, into *ret_fd: if it does. */
int boxes_memory_take(struct boxes *b, const struct outfit *outfit, struct kept *kept, int *ret_fd,
                      struct err *err) WARN_UNUSED;
void boxes_memory_back(struct kept *k, bool memory); /* whole again; memory: it has not run since that was saved */
void boxes_memory_drop(struct boxes *b, const char *name); /* there may be none */
void boxes_memory_tidy(struct boxes *b);

/* ---- boxes_volume.c ---- */

void boxes_mount_begin(struct task *t);
size_t boxes_mounted_names(struct box_entry *e, char (*ret_names)[SUP_VOLUME_MAX]); /* room for MOUNTS_MAX */
struct mounted *boxes_mounted_add(struct box_entry *e, const char *volume);
void boxes_unmounted(struct box_entry *e); /* its mounts are gone */

/* ---- boxes_nest.c ---- */

void boxes_nest_begin(struct task *t);
void boxes_nest_free(struct nest_order *order); /* NULL is fine */

/* ---- boxes_note.c ---- */

int boxes_notes_open(const struct tier_host *host, struct notes *ret_notes) WARN_UNUSED; /* -errno: with an fd of -1 */
void boxes_note(struct boxes *b, const char *id, const char *box,
                const char *stands_on);             /* in place of an earlier one */
void boxes_unnote(struct boxes *b, const char *id); /* there may be none */

/* ---- boxes_keep.c ---- */

void boxes_keep_fini(struct boxes *b);
usec_t boxes_keep_tick(struct boxes *b);
struct kept *boxes_kept_find(struct boxes *b, const char *id); /* NULL: none, or doomed */
void boxes_kept_release(struct kept *k);                       /* busy no more */
void boxes_kept_taken(struct kept *k);                         /* another box runs on its files: it is gone */
void boxes_kept_doom(struct kept *k);
/* Whoever asked for them is refused; what was dressed in them gives them back. */
void boxes_kept_stay(struct kept *k, bool memory);

void boxes_stop_begin(struct task *t);
void boxes_stop_frozen(struct task *t, int r);
void boxes_stop_reaped(struct box_entry *e); /* it has ended: TASK_STOP is its first, or it may return */
void boxes_give_back(
    struct box_entry *e); /* it was dressed in files that are kept, and has ended before it was anybody's */
void boxes_copy_later(struct box_entry *e);    /* it is frozen */
void boxes_copy_is_stale(struct box_entry *e); /* it is going to run, or has ended */

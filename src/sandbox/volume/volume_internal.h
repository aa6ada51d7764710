/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of volumes know of each other. */
#pragma once

#include "sandbox/object.h"
#include "sandbox/volume/volumes.h"
#include "store/volume_rows.h"

/* The sandbox through which a volume's files are read and written. */
struct opener {
    struct sandbox *sb; /* a reference; NULL: none, or it is being made */
    bool is_making;
    size_t users;
    struct list waiting; /* struct waiter */
    struct sandbox_watch watch;
    struct loop_alarm idle;
    void (*closed)(void *ctx); /* somebody waits for its end */
    void *closed_ctx;
    struct loop_job closed_job;
};

struct vol {
    struct core *core;
    struct volume v;
    struct charge charge;
    bool is_busy;  /* is being made or dropped */
    bool is_there; /* coved has it: asked at start */
    bool is_away;  /* it had not, though it was made once */
    struct work *retrying;
    uint64_t action_seq; /* of what is being done to it; 0: nothing */
    struct opener opener;
};

/* Of volume_usage.c. */
struct usages {
    struct core *core;
    struct list asking, next; /* who is notified at the end of this round, and of the next one */
    char (*ids)[VOLUME_ID_LEN + 1];
    size_t n, at; /* ids: all, and those that were asked about */
    bool is_under_way;
    struct err err; /* why it ends */
    struct loop_job end_job;
};

struct volumes {
    struct core *core;
    struct map by_id, by_name; /* struct vol; by_name: "<tenant>/<name>" */
    struct usages usages;
};

/* volume_usage.c */
void usages_init(struct usages *u, struct core *core);
void usages_abandon(struct usages *u, const struct err *why);
void usages_fini(struct usages *u);

struct vol *vol_next(struct core *core, size_t *it);                    /* as map_next() */
struct vol *vol_find(struct core *core, uint64_t view, struct str ref); /* NULL: unknown, or busy */
int vol_unknown(struct str ref, struct err *err);                       /* -1 */
int vol_check_there(const struct vol *v, struct err *err) WARN_UNUSED;

/* volume_log.c: its events. An action that can't be recorded is not done. */
void volume_observe(struct vol *v, enum event_kind kind, struct str data); /* of the last action */
void volume_failed(struct vol *v, const char *what, const struct err *why);
void volume_refused(struct vol *v, const struct actor *actor, const char *what, const struct err *why);
bool volume_log_says_made(const struct vol *v); /* and not that it is being dropped */
void volume_log_refused(struct sandbox *sb, const struct volume_mount *m, const struct err *why);

/* opener.c */
void opener_init(struct vol *v);
void opener_fini(struct vol *v);
void opener_close(struct vol *v, void (*closed)(void *ctx),
                  void *ctx); /* in a later turn; who waits for it is refused */
void opener_abandon(struct vol *v, const struct err *why);

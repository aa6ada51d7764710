/* SPDX-License-Identifier: Apache-2.0 */
/* The core and a sandbox, as the files of src/sandbox know them. Not for façades. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "event/log.h"
#include "sandbox/action.h"
#include "sandbox/figures.h"
#include "sandbox/guard.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/quota.h"
#include "sandbox/session/session.h"
#include "sandbox/start/start.h"
#include "sandbox/supervisor.h"
#include "sandbox/webhook.h"
#include "store/sandbox_rows.h"
#include "store/store.h"
#include "template/template.h"

enum {
    SANDBOX_KEEP_ENDED_MS = 60000,
    SANDBOX_KEEP_ENDED_MAX = 1000,
    SANDBOX_SAMPLE_MS = 5000,
    SANDBOX_SAMPLES_MAX = 4096, /* of one */
    SANDBOX_SAMPLES_LEAST = 128,
    SANDBOX_SAMPLES_ALL = 131072, /* of all together, 8 MiB */
};

/* Of record/seen.c: what the kernel saw of one sandbox, until it becomes an event. */
enum { SEEN_BATCHES = 16 };
struct seen_batch {
    struct sandbox *sb; /* n 0: none */
    enum event_kind kind;
    uint32_t n;
    struct buf data;
};

struct core {
    struct core_config config; /* its strings are ours */
    struct loop *loop;
    struct figures figures;
    struct supervisor *supervisor;
    struct seen_batch seen[SEEN_BATCHES]; /* empty between two messages of coved */
    struct networks *networks;
    struct template_registry *templates;
    const struct guard *guard;
    struct guards *guards; /* the rules in force (guard.c) */
    struct list holds;     /* struct hold (hold.c), oldest first */
    size_t n_holds, hold_bytes;
    size_t charged_bytes, n_connections; /* of all tenants (quota.c) */
    struct map by_id;                    /* every struct sandbox in memory; holds a reference */
    struct map by_port_alias;            /* the same; holds none */
    struct list live;                    /* running (or paused) ones, newest first */
    struct list ended;                   /* ones that are forgotten later, oldest first */
    size_t n_live, n_creating, n_ended;
    size_t n_paused; /* of n_live */
    bool closing;
    struct tenants *tenants;
    struct keys *keys;
    struct webhooks *webhooks;
    struct exporter *exporter;
    struct layers *layers;
    struct volumes *volumes;
    struct spares *spares;
    usec_t opened_at; /* real time */
    struct record_keeper *keeper;
    struct retention *retention;
    uint64_t unrecorded; /* events and rows that could not be written */
    struct list ends;    /* that are not in the store yet (ends.c) */
    size_t n_ends;
    struct store_hook ends_hook;
};

struct sandbox {
    struct core *core;
    unsigned refs;
    struct sandbox *within; /* a reference: the one whose nest this is (nest.c); NULL: it is one itself */
    bool has_own_root;      /* a nest that sees none of its files */
    bool has_own_ca;        /* and has the certificate of the network in its own */
    struct list services;   /* struct sandbox_service */
    struct sandbox_info info;
    struct arena arena;    /* info's strings */
    struct arena metadata; /* those of metadata that was changed */
    struct arena envs;     /* the same of variables */
    struct charge charge;
    const char *layer;
    char fork_layer[LAYER_NAME_LEN + 1]; /* of its last fork; "": there was none */
    unsigned n_forking;
    const char *user, *workdir; /* of processes that say none; NULL: the agent's */
    size_t n_mounted;           /* how many */
    unsigned n_relays;
    struct network *network; /* owned; never NULL */
    struct list node;        /* in core->live, or ->ended */
    struct session *session; /* NULL: before coved made it, and after the end */
    struct session *closing; /* the one that was: until its streams have ended */
    uint64_t create_seq;     /* the action's event; 0 when taken over from an earlier worker */
    uint64_t ending_seq;     /* the event that began the end */

    struct start *start;  /* NULL: none is under way */
    struct list starters; /* struct waiter (pause.c): who gets its result */
    uint64_t n_starts;
    sandbox_fn kill_done; /* NULL once called */
    void *kill_ctx;

    const char *end_cause; /* decided when the end began; SUP_ENDED may know better */
    bool fails;            /* ends as SANDBOX_FAILED */
    struct err failure;
    struct loop_alarm end_alarm, sample_alarm, suspect_alarm, kill_alarm, forget_alarm;
    struct rules *rules;             /* the guard's, of this sandbox; NULL: none */
    struct checkpoints *checkpoints; /* life/checkpoint.c; NULL: there were none */
    struct stuck *stuck;             /* guard/stuck.c; NULL: nothing was done yet */
    struct list watches;
    struct loop_job watch_job; /* holds a reference while queued */

    struct list processes; /* struct process (exec.c) */
    size_t n_ended_processes;
    struct code *code;               /* code/code.c; NULL: nobody ran any yet */
    struct taking_over *taking_over; /* exec_recover.c, while it goes on */

    struct sandbox_sample *samples;
    size_t n_samples, cap_samples;
    uint64_t cpu_usec; /* at the last sample */
    usec_t cpu_at;     /* monotonic, 0: none yet */
    uint64_t disk_used, disk_total;
    uint64_t n_seen;   /* things that the kernel saw and that are in the log, of this worker */
    bool disk_is_full; /* and that was told */
    bool disk_asked;   /* the first sample waits a moment for the disk's figures */
    struct loop_alarm history_alarm;
    uint64_t history_from; /* while its log is shortened: what stays begins here */
    usec_t suspected_at;   /* monotonic: when its figures were looked at out of turn; 0: never */
    uint64_t n_dials_told; /* how many are in the log, since this worker began */
    uint32_t oom_kills;    /* that were told */
    uint32_t pids_refused; /* as seen last */
    uint32_t pids_told;    /* of these */
    bool pids_are_short;   /* and that was told */
    bool pids_grew;        /* pids_refused did, since the last regular sample */
    bool stored;           /* its creation is */
    bool listed;           /* by coved, at recovery */
    uint32_t life;         /* enum sup_life, when listed */

    const char *start_cmd, *ready_cmd; /* run at each start, before the sandbox is handed over; NULL: none */
    struct launch *launch;             /* while that goes on */
    bool is_spare;                     /* ready, and not given to anybody yet (spare.c) */
    struct list spare_node;            /* in a stock, until somebody has it */

    struct list stores;  /* struct storing (snapshot.c): clones of its files, the first is under way */
    struct list pausers; /* struct waiter (pause.c) */
    bool pause_memory, pause_to_disk, pause_asked, resume_cold, resume_asked;
    bool goes_on; /* it is made from memory, a snapshot's, a template's or that of whom it is a fork of */
    bool is_fork;
    bool may_start;     /* that memory is a build's: where it can't be used, the start command is run */
    bool was_kept;      /* nothing of it ran when its end began */
    bool session_broke; /* since it began to be paused, or to be resumed */
    unsigned attaching; /* so many times coved was asked for a socket for the session, and has not answered */
    bool is_half_made;  /* paused for everybody, but coved has what an earlier worker began to make of its files */
    uint64_t pause_seq; /* the event that began the last pause or resume */
    uint64_t resume_timeout_ms;
    usec_t pause_began;       /* monotonic; or the resume */
    usec_t end_retry;         /* monotonic: its deadline is not looked at before */
    unsigned end_tries;       /* pauses at the deadline that failed since the last one that did not */
    unsigned end_stuck;       /* of those, the ones with memory that failed for no reason that passes */
    struct list wakes;        /* struct sandbox_wake (wake.c) */
    struct loop_job wake_job; /* holds a reference while queued */
    struct err wake_err;      /* the last resume failed */
};

/* sandbox.c */
struct sandbox *sandbox_new(struct core *core, const char *id);
/* In no table, with the id and the strings of the one that it keeps a reference on. */
struct sandbox *sandbox_new_within(struct sandbox *of);
void sandbox_set_port_alias(struct sandbox *sb, const char *alias);
void sandbox_untable(struct sandbox *sb); /* nobody finds it any more; the table's reference is the caller's */
void sandbox_count_creating(struct sandbox *sb, bool begins); /* those that are hidden don't count */
void sandbox_enlist(struct sandbox *sb);                      /* into the live list, at its place */
void sandbox_delist(struct sandbox *sb);                      /* nor does it count any more */
struct pair *pairs_copy(struct arena *a, const struct pair *pairs, size_t n);
int pairs_check(const char *what, const struct pair *pairs, size_t n, bool are_variables,
                struct err *err) WARN_UNUSED; /* start/create.c */

/* state.c */
bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to);
bool sandbox_state_is_over(enum sandbox_state state); /* stopping, ended or failed */

/*
 * Moves the state, which must be legal, appends the event of the move and writes the row's state. data: JSON object
 * text. Returns the event's seq (0 when it could not be stored).
 */
uint64_t sandbox_move(struct sandbox *sb, enum sandbox_state to, const struct event_draft *event);

/* action.c */
/* action_begin() without the look at the state. */
int action_permit(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                  uint64_t *ret_seq, struct err *err) WARN_UNUSED;
int sandbox_usable(const struct sandbox *sb, struct err *err) WARN_UNUSED;

/* answers.c */
void answers_give(struct sandbox *sb); /* nothing while its agent can't be asked */

/* recovery.c */
int recovery_run(struct core *core, struct err *err) WARN_UNUSED;
void recovery_compare(struct core *core); /* coved was started again */

/* The user of a request that names none. */
static inline struct str sandbox_user(const struct sandbox *sb, struct str user)
{
    return user.n || !sb->user ? user : str_of(sb->user);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/sandbox know of each other: the core, a sandbox, and who calls whom. Not for façades. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "event/log.h"
#include "sandbox/action.h"
#include "sandbox/guard.h"
#include "sandbox/quota.h"
#include "sandbox/session.h"
#include "sandbox/start.h"
#include "sandbox/supervisor.h"
#include "store/sandbox_rows.h"
#include "store/store.h"
#include "template/template.h"

enum {
    SANDBOX_KEEP_ENDED_MS = 60000,
    SANDBOX_SAMPLE_MS = 5000,
    SANDBOX_SAMPLES_MAX = 4096, /* of one */
    SANDBOX_SAMPLES_LEAST = 128,
    SANDBOX_SAMPLES_ALL = 131072, /* of all together, 8 MiB */
};

struct core {
    struct core_config config; /* its strings are ours */
    struct loop *loop;
    struct supervisor *supervisor;
    struct networks *networks;
    struct template_registry *templates;
    const struct guard *guard;
    struct list holds; /* struct hold (hold.c), oldest first */
    size_t n_holds, hold_bytes;
    struct map by_id;         /* every struct sandbox in memory; holds a reference */
    struct map by_port_alias; /* the same; holds none */
    struct list live;         /* running (or paused) ones, newest first */
    size_t n_live, n_creating;
    size_t n_paused; /* of n_live */
    bool closing;
    struct tenants *tenants;
    struct layers *layers;
    struct volumes *volumes;
    struct spares *spares;
    usec_t opened_at; /* real time */
    struct keeper *keeper;
    struct retention *retention;
    uint64_t unrecorded; /* events and rows that could not be written */
    struct list ends;    /* that are not in the store yet (ends.c) */
    size_t n_ends;
    struct store_hook ends_hook;
};

struct sandbox {
    struct core *core;
    unsigned refs;
    struct sandbox_info info;
    struct arena arena;    /* info's strings */
    struct arena metadata; /* those of metadata that was changed */
    struct charge charge;
    const char *layer;
    const char *user, *workdir; /* of processes that say none; NULL: the agent's */
    size_t n_mounted;           /* so many of them */
    struct network *network;    /* owned; never NULL */
    struct list node;           /* in core->live */
    struct session *session;    /* NULL: before coved made it, and after the end */
    struct session *closing;    /* the one that was: until its streams have ended */
    uint64_t create_seq;        /* the action's event; 0 when taken over from an earlier worker */
    uint64_t ending_seq;        /* the event that began the end */

    struct start *start;  /* NULL: none is under way */
    struct list starters; /* struct waiter (pause.c): who hears what comes of it */
    uint64_t n_starts;
    sandbox_fn kill_done; /* NULL once called */
    void *kill_ctx;

    const char *end_cause; /* decided when the end began; SUP_ENDED may know better */
    bool fails;            /* ends as SANDBOX_FAILED */
    struct err failure;
    struct loop_alarm end_alarm, sample_alarm, suspect_alarm, kill_alarm, forget_alarm;
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

    const char *start_cmd, *ready_cmd; /* to be run at each start, before anybody hears of it; NULL: none */
    struct launch *launch;             /* while that goes on */
    bool is_spare;                     /* ready, and nobody's (spare.c) */
    struct list spare_node;            /* in a stock, until somebody has it */

    struct list stores;  /* struct storing (snapshot.c): clones of its files, the first is under way */
    struct list pausers; /* struct waiter (pause.c) */
    bool pause_memory, pause_asked, resume_cold, resume_asked;
    bool was_kept;      /* nothing of it ran when its end began */
    bool session_broke; /* since it began to be paused, or to be resumed */
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
void sandbox_set_port_alias(struct sandbox *sb, const char *alias);
void sandbox_untable(struct sandbox *sb); /* nobody finds it any more; the table's reference is the caller's */
void sandbox_count_creating(struct sandbox *sb, bool begins); /* those that are hidden don't count */
void sandbox_enlist(struct sandbox *sb);                      /* into the live list, at its place */
void sandbox_delist(struct sandbox *sb);                      /* nor does it count any more */
struct pair *pairs_copy(struct arena *a, const struct pair *pairs, size_t n);

/* state.c */
bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to);
bool sandbox_state_is_over(enum sandbox_state state); /* stopping, ended or failed */

/*
 * Moves the state, which must be legal, appends the event of the move and writes the row's state. data: JSON object text. Returns
 * the event's seq (0 when it could not be stored).
 */
uint64_t sandbox_move(struct sandbox *sb, enum sandbox_state to, const struct event_draft *event);

/* pause.c: the way to sleep */
struct waiter {
    struct list node;
    sandbox_fn done;
    void *ctx;
};
void waiters_add(struct list *waiters, sandbox_fn done, void *ctx);
void waiters_tell(struct list *waiters, struct sandbox *sb, const struct err *err); /* err NULL: sb; empties the list */
/* Asks coved what the state wants of it, if it was not asked yet and nothing of the sandbox is under way that has to be over first. */
void pause_go(struct sandbox *sb);
void pause_expired(struct sandbox *sb); /* its time is up, and it is to be paused then */
/* Its session broke, which this state explains: true, and there is nothing more to do. */
bool pause_explains(struct sandbox *sb, const struct err *what);
void pause_drop_session(struct sandbox *sb);
/* What came of the pause, or of the resume. */
void pause_move(struct sandbox *sb, enum sandbox_state to, enum event_kind kind, struct event_data *d);
void pause_unknown(struct sandbox *sb); /* to coved: it ends */
/* Its processes have ended, its files are kept: lets go of what was of the processes. */
void pause_let_go(struct sandbox *sb);
/* In a later turn, as if coved had said so. fn's context is the sandbox, with the reference that was taken for the call. */
void pause_answer_later(struct sandbox *sb, supervisor_fn fn, const struct err *err);
/* Who waits for a pause, a resume or to be woken hears that it ends. */
void pause_ends(struct sandbox *sb, const struct err *why);

/* resume.c: the way back */
void resume_go(struct sandbox *sb);
void resume_begin(struct sandbox *sb, uint64_t timeout_ms, bool cold, uint64_t seq);
int resume_limit(const struct core *core, struct err *err) WARN_UNUSED;
void resume_runs(struct sandbox *sb);                             /* all of it is there: it is running from here on */
void resume_failed(struct sandbox *sb, const struct err *err);    /* it is paused again */
void resume_attach(struct sandbox *sb);                           /* a session for one that has none */
int resume_thaw(struct sandbox *sb, struct err *err) WARN_UNUSED; /* START_BOX */
/* Its processes end, its files are kept. fn's context is the sandbox, with a reference. */
void resume_put_away(struct sandbox *sb, supervisor_fn fn);

/* snapshot.c */
/* Clones its files as a layer. fn comes once, later; the event has what was told of it. seq: of the action that wants it. */
struct sup_stored;
typedef void (*store_fn)(void *ctx, const struct sup_stored *stored, const struct err *err);
int store_files(struct sandbox *sb, const char *layer, uint64_t seq, store_fn fn, void *ctx,
                struct err *err) WARN_UNUSED;
int store_permitted(const struct sandbox *sb, struct err *err) WARN_UNUSED; /* it runs or is paused */
void stores_end(struct sandbox *sb, const struct err *why);                 /* those that coved does not know of yet */
bool layer_name_is(const char *name);

/* layers.c */
struct layers *layers_new(struct core *core);
void layers_free(struct layers *l);
void layers_making(struct core *core, const char *layer); /* no garbage, though nobody names it yet, */
void layers_fresh(struct core *core,
                  const char *layer); /* and for a while after it is made, or until layers_settled() */

/* volume.c */
struct volumes *volumes_new(struct core *core);
int volumes_load(struct core *core, struct err *err) WARN_UNUSED;  /* what the store knows; before the sandboxes */
int volumes_check(struct core *core, struct err *err) WARN_UNUSED; /* against what coved has */
void volumes_abandon(struct core *core, const struct err *why);    /* the core closes */
void volumes_free(struct volumes *all);

/* volume_log.c */
void volume_log_mounted(struct sandbox *sb);   /* the next of its volumes is */
void volume_log_unmounted(struct sandbox *sb); /* all that were */

/* mount.c */
int mounts_check(struct core *core, uint64_t view, const struct volume_mount *mounts, size_t n,
                 struct err *err) WARN_UNUSED;
/* START_VOLUMES */
void mounts_begin(struct sandbox *sb);

/* launch.c */
void launch_begin(struct sandbox *sb); /* START_COMMAND */
void launch_cancel(struct sandbox *sb);

/* spare.c */
struct spares *spares_new(struct core *core);
int spares_load(struct core *core, struct err *err) WARN_UNUSED;
void spares_free(struct spares *all);
/* One that is ready and fits, out of its stock; NULL: none. t stays valid. */
struct sandbox *spare_take(struct core *core, const struct template *t, const struct sandbox_spec *spec);
void spare_gone(struct sandbox *sb);
void spares_look(struct core *core);  /* soon: templates have changed */
void spares_short(struct core *core); /* there is no room */

/* wake.c */
void wake_init(struct sandbox *sb);
void wake_later(struct sandbox *sb); /* its state has changed */
void wake_drop(struct sandbox *sb);

/* deadline.c */
void sandbox_arm_end(struct sandbox *sb);

/* make.c: objects of new sandboxes, in no row yet */
struct sandbox *make_sandbox(struct core *core, const struct template *t, const char *alias,
                             const struct sandbox_spec *spec);
struct sandbox *make_fork(const struct sandbox *of, const char *layer,
                          uint64_t timeout_ms);                 /* 0: never ends by itself */
void make_launch(struct sandbox *sb, const struct template *t); /* the template's commands */
/* What the asker alone decides about; the rest of a sandbox can be there before anybody asks. */
void make_own(struct sandbox *sb, const struct template *t, const char *alias, const struct sandbox_spec *spec);
void make_describe(const struct sandbox *sb, struct event_data *d);
const struct volume_mount *mounts_copy(struct arena *a, const struct volume_mount *mounts, size_t n);

/* create.c: gate, row, action, network and coved for a new object; it is gone when this fails. fork_of: NULL or an id, for the record */
int create_begin(struct sandbox *sb, const struct actor *actor, const char *fork_of, sandbox_fn done, void *ctx,
                 struct err *err) WARN_UNUSED;
void create_message(const struct sandbox *sb, union sup_message *ret_message);

/* life.c */
struct ending {
    enum event_kind kind; /* the event that begins it; EVENT_KIND_UNKNOWN: seq says it */
    enum event_grade grade;
    struct str actor;
    const char *cause; /* a literal */
    bool fails;
    const char *what; /* for the event's data and the clients that wait; may be NULL */
    uint64_t seq;
};
void sandbox_end(struct sandbox *sb, const struct ending *ending);
/* It is not (any more) there: straight to SANDBOX_FAILED. */
void sandbox_failed(struct sandbox *sb, const struct err *err);
/* The supervisor says that it has ended. ctx: the core. */
void sandbox_on_ended(void *ctx, const struct sup_ended *ended);
void sandbox_forget_later(struct sandbox *sb, usec_t after);
void sandbox_lost(struct sandbox *sb);                           /* in the store only: at recovery */
void sandbox_kill_leftover(struct sandbox *sb);                  /* was stopping already when an earlier worker died */
void sandbox_abandon(struct sandbox *sb, const struct err *why); /* the core closes, the sandbox lives on */
struct session *sandbox_session_new(struct sandbox *sb);

/* answers.c */
void answers_give(struct sandbox *sb); /* nothing while its agent can't be asked */

/* recovery.c */
int recovery_run(struct core *core, struct err *err) WARN_UNUSED;
void recovery_compare(struct core *core); /* coved was started again */

/* rows.c: the store's row of a sandbox. Failures are counted and logged. */
int rows_insert(struct sandbox *sb, struct err *err) WARN_UNUSED;
int rows_replace(struct sandbox *sb, struct err *err) WARN_UNUSED;
void rows_state(struct sandbox *sb);
void rows_end_at(struct sandbox *sb);
void rows_ended(struct sandbox *sb);
void rows_network(struct sandbox *sb);
void rows_extra(struct sandbox *sb);
void rows_fill(struct sandbox *sb, const struct store_sandbox *row);

/* action.c */
/* action_begin() without the look at the state. */
int action_permit(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str data,
                  uint64_t *ret_seq, struct err *err) WARN_UNUSED;
int sandbox_usable(const struct sandbox *sb, struct err *err) WARN_UNUSED;

/* keeper.c: commits, suppressed events, checkpoints */
struct keeper *keeper_new(struct core *core);
void keeper_free(struct keeper *k);
void keeper_wrote(struct keeper *k);                              /* something waits in the store's batch */
void keeper_acts(struct keeper *k);                               /* the same, and it is an action */
int keeper_commit(struct keeper *k, struct err *err) WARN_UNUSED; /* now */
bool keeper_fails(const struct keeper *k);                        /* the last commit did */
void keeper_settle(struct keeper *k);                             /* what was committed survives a power cut, soon */
void core_unrecorded(struct core *core, const struct err *err);

/* ends.c: sandbox_move() to ENDED or FAILED, which is written again when the store did not take it. */
uint64_t sandbox_move_to_end(struct sandbox *sb, enum sandbox_state to, const struct event_draft *event);
void ends_write(struct core *core); /* those that wait; for a timer of a second or so */
void ends_open(struct core *core);
void ends_close(struct core *core);

/* retention.c: forgets sandboxes that ended long ago, a little at a time */
struct retention *retention_new(struct core *core);
void retention_free(struct retention *r); /* accepts NULL */

/* exec.c, exec_log.c */
void exec_sandbox_gone(struct sandbox *sb); /* frees what is left of its processes */
void exec_recover(struct sandbox *sb);      /* follow what an earlier worker left running */
void exec_recover_stop(struct sandbox *sb);
/* Events before `before` are about to go, the newest one is `last`: records once more what exec_recover() must find of processes that run. */
void exec_carry(struct sandbox *sb, uint64_t before, uint64_t last);
bool exec_is_running(struct sandbox *sb, uint64_t cause); /* the process of this action */

/* Its deadlines stand still while it does (process.c). */
void exec_stand_still(struct sandbox *sb);
void exec_go_on(struct sandbox *sb);

/* The user of a request that names none. */
static inline struct str sandbox_user(const struct sandbox *sb, struct str user)
{
    return user.n || !sb->user ? user : str_of(sb->user);
}

/* history.c */
void history_look(struct sandbox *sb);
void history_stop(struct sandbox *sb);

/* usage.c */
void usage_start(struct sandbox *sb);
void usage_stop(struct sandbox *sb);
/* Something inside failed, perhaps for want of room: looks at once, lest there is room again at the next sample. */
void usage_suspect(struct sandbox *sb);
void usage_forget(struct sandbox *sb); /* its control group is gone: what another one counts begins at 0 */

/* network.c: hooks of a sandbox's life; what façades use is in network.h */
struct networks *networks_new(struct core *core);
void networks_free(struct networks *all);           /* accepts NULL */
void networks_attach(struct networks *all, int fd); /* takes it */

int network_unavailable(struct err *err); /* sets ERR_UNAVAILABLE, returns -1 */
int network_check_spec(const struct core *core, const struct sandbox_spec *spec, struct err *err) WARN_UNUSED;
void network_new(struct sandbox *sb, const struct sandbox_spec *spec);
bool network_is_plain(const struct sandbox *sb); /* all of the Internet, and nothing under way */
void network_replace(struct sandbox *sb, const struct sandbox_spec *spec);
void network_new_like(struct sandbox *sb, const struct sandbox *of);
/* Whoever asks may have the policy that is asked for: the guard is asked before there is a sandbox. Then it goes on record. *ret_seq: the event, or create_seq. */
int network_allow(const struct sandbox *sb, const struct actor *actor, struct err *err) WARN_UNUSED;
int network_record(struct sandbox *sb, const struct actor *actor, uint64_t *ret_seq, struct err *err) WARN_UNUSED;
/* START_NETWORK: tells the policy, also after network_forget(). seq: of the action that wants it. 1: was told. */
int network_begin(struct sandbox *sb, uint64_t seq, struct err *err) WARN_UNUSED;
bool network_wants_ca(const struct sandbox *sb);                         /* its certificate is not inside yet */
int network_install_ca(struct sandbox *sb, struct err *err) WARN_UNUSED; /* START_CERTIFICATE */
void network_recover(struct sandbox *sb);                                /* taken over from another worker */
void network_forget(struct sandbox *sb);                                 /* it is on its way out */
void network_end_log(struct sandbox *sb);                                /* its last event comes next */
void network_free(struct sandbox *sb);
char *network_row(const struct sandbox *sb); /* for its column; free with mem_free() */
void network_from_row(struct sandbox *sb, const char *text);
#define NETWORK_CA_FILE "/usr/local/share/ca-certificates/cove-sandbox.crt"
#define NETWORK_CA_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
/* The variables by which programs find the certificate; the user's own win. */
const struct pair *network_envs(const struct sandbox *sb, size_t *ret_n);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: a core with a store of its own, a coved that is a socket and a table, and agents that do what they are
 * told - or lie. All in one loop and one process. Every wait is bounded.
 */
#pragma once

#include "base/map.h"
#include "sandbox/exec/exec.h"
#include "sandbox/files/files.h"
#include "sandbox/life/pause.h"
#include "sandbox/object.h"
#include "store/store.h"
#include "store/test_dir.h"

struct fake_agent;

struct fake_layer {
    char name[SUP_DIGEST_MAX], below[SUP_DIGEST_MAX];
};

/* cove-egress: a socket that remembers what it was told. */
struct fake_egress {
    struct world *w;
    int fd; /* -1: none */
    uv_poll_t poll;
    struct map policies; /* id -> char *: the whole last message */
    unsigned n_policies, n_seals, n_forgets;
    const char *ca_pem;  /* comes with the answer to a policy that injects */
    const char *refuses; /* an op that fails */
    bool is_mute;
    char sealed[256]; /* the last value that was to be sealed */
    int64_t last_tag;
};

struct world {
    struct test_dir *dir;
    uv_loop_t loop;
    uv_timer_t tick; /* so that a wait looks at its condition */
    struct store *store;
    struct event_log *events;
    struct artefacts *artefacts;
    struct core *core;
    struct core_config config;
    uv_poll_t coved_poll;
    int coved_fd;
    struct map agents; /* id -> struct fake_agent; what "lives" */
    struct map nests;  /* name of a service -> the same; its last one */
    int received_fd;   /* with the request that is handled; -1: none, or taken */
    /* What coved does. */
    enum err_code create_error;
    bool create_mute, kill_mute, agents_mute, ended_is_late;
    enum err_code pause_error, resume_error;
    bool is_flag_up;    /* of the command "flag" */
    bool holds;         /* PAUSE and RESUME are done, but answered by world_answer() only */
    uint32_t held_tag;  /* the last of them */
    struct map kept;    /* id -> the same: paused without memory */
    bool kill_is_plain; /* KILL of a kept one: no SUP_ENDED */
    unsigned creates, kills, attaches, usages, pauses, resumes, snapshots;
    uint64_t disk_used, disk_limit; /* what USAGE says */
    uint32_t pids_refused, oom_kills;
    enum err_code snapshot_error, rewind_error;
    bool files_stay; /* nothing has changed since the snapshot that one is to be unlike */
    unsigned rewinds;
    struct map volumes;                               /* id -> the same: what is in the pool */
    struct sup_owner owner;                           /* what was told last */
    unsigned owners;                                  /* how often */
    uint64_t owner_limit, create_owner, volume_owner; /* of the last ones */
    uint64_t owner_used;                              /* what OWNER says; 0: the pool doesn't count */
    enum err_code owner_error;
    unsigned mounts, volume_refusals, usage_asks; /* usage_asks: how often figures of volumes were asked for */
    enum err_code mount_error, volume_error;
    unsigned mount_silence; /* so many mounts are made and not answered */
    struct map layers;      /* name -> struct fake_layer; without the template's */
    struct fake_egress egress;
    unsigned trust_refusals, trust_silence; /* so many certificates are refused; answered by nobody */
    bool has_no_egress;                     /* for the next world_open() */
    bool supervisor_lost;
};

int world_setup(void **state); /* for cmocka; *state is a struct world with a template "base" */
int world_teardown(void **state);

void world_open(struct world *w);               /* (re)opens core and store on the same files */
void world_close(struct world *w);              /* closes the core: what a worker that dies leaves behind */
void world_turn(struct world *w);               /* one turn of the loop */
void world_turns(struct world *w, unsigned ms); /* turns for that long */
void world_hang_up(struct world *w);            /* coved dies */

#define WAIT(w, condition)                                                                                             \
    do {                                                                                                               \
        usec_t until_ = clock_mono() + 20 * USEC_PER_SEC;                                                              \
        while (!(condition)) {                                                                                         \
            if (clock_mono() > until_)                                                                                 \
                fail_msg("waited in vain for: %s", #condition);                                                        \
            world_turn(w);                                                                                             \
        }                                                                                                              \
    } while (0)

extern const struct actor test_actor;

void world_answer(struct world *w, enum err_code code);        /* to what is held */
void world_answer_stored(struct world *w, enum err_code code); /* to a snapshot that is held */
void world_layer(struct world *w, const char *name, const char *below);
void world_lose_memory(struct world *w); /* coved is another one: of what was frozen the files are kept */

/* A running sandbox with these settings (spec may be NULL); its agent. */
struct sandbox *world_sandbox(struct world *w, const struct sandbox_spec *spec);
/* The same, with so long to live from then on: however slow the machine is, it is there. */
struct sandbox *world_expiring(struct world *w, const struct sandbox_spec *spec, uint64_t timeout_ms);
struct fake_agent *world_agent(struct world *w, const struct sandbox *sb);
size_t world_count_events(struct world *w, const char *id, enum event_kind kind); /* also commits */
/* A built template of that name; NULL: without the command. */
void world_template(struct world *w, const char *name, const char *start, const char *ready);

/* What an operation on a sandbox came to; world_on_done() notes it. */
struct world_outcome {
    unsigned calls;
    struct sandbox *sb;
    struct err err;
};
void world_on_done(void *ctx, struct sandbox *sb, const struct err *err);
void world_pause(struct world *w, struct sandbox *sb, bool memory);                       /* works, and so does */
void world_resume(struct world *w, struct sandbox *sb, const struct sandbox_resume *how); /* how: may be NULL */
int world_resume_begin(struct sandbox *sb, const struct sandbox_resume *how, struct world_outcome *o, struct err *err);
struct sandbox *world_restart(struct world *w, const char *id); /* another worker; the sandbox there */

/* Data of the last event of a kind, "" when there is none. Until the next call. */
const char *world_event_data(struct world *w, const char *id, enum event_kind kind);
const char *world_event_grade(struct world *w, const char *id, enum event_kind kind);

/* ---- coved (test_coved.c) ---- */

void world_coved_reads(uv_poll_t *handle, int status, int events); /* handle->data: the world */
/* While core_open() blocks: answers one message, LIST, in a thread. arg: the world. */
void world_coved_thread(void *arg);

/* ---- cove-egress (test_egress.c) ---- */

void egress_start(struct world *w); /* one that replaces the one before; its socket goes to the core */
void egress_stop(struct world *w);  /* it dies */
void egress_say(struct world *w, const char *message);
void egress_say_of(struct world *w, const struct sandbox *sb, const char *op, const char *members); /* "\"port\":1" */
bool egress_is_hung_up(struct world *w); /* its socket was closed by the core */
void egress_send_on(struct world *w, int sock);
/* What it was told last of a sandbox, "" for nothing. */
const char *egress_policy(struct world *w, const char *id);

/* ---- the agents ---- */

struct fake_process {
    uint32_t pid;
    char *tag;
    struct buf output; /* all that it will ever write */
    uint8_t channel;
    bool exited, is_cat, is_runner, has_stdin;
    uint8_t how;
    uint32_t code;
    uint64_t sent, seen;
    struct fake_process *next;
};

struct fake_stream {
    uint32_t id;
    uint8_t verb;
    struct fake_process *process;
    struct str body; /* of READ and LIST: what is left to send */
    uint64_t offset, acked;
    uint32_t credit;
    bool closed, host_eof;
    struct buf in;
    char *path;
};

struct fake_agent {
    struct world *w;
    char id[ID_SANDBOX_LEN + 1];
    char layer[SUP_DIGEST_MAX];
    int fd;
    uv_poll_t *poll;
    struct buf in, out;
    struct map streams; /* id -> struct fake_stream */
    struct map files;   /* path -> struct buf */
    struct fake_process *processes;
    uint32_t last_pid;
    bool deaf; /* reads nothing */
    bool confined;
    bool is_frozen;
    unsigned launches;                                  /* commands of a template's */
    char mounted[256];                                  /* "volume:path[:ro];" */
    bool keep_streams;                                  /* does not END what is CLOSEd */
    void (*lie)(struct fake_agent *a, uint32_t stream); /* what the command "lie" does */
    unsigned dials, closes, signals, credits;
    uint64_t most_outstanding; /* bytes of DATA without credit returned, on any stream */
    char hello[256];           /* of the host: "attributes;K=V;" */
    char last_env[1024];       /* of the last EXEC, "K=V;" */
};

void fake_send(struct fake_agent *a, uint8_t type, uint8_t flags, uint32_t stream, const void *p, size_t n);
void fake_send_raw(struct fake_agent *a, const void *p, size_t n);
void fake_end(struct fake_agent *a, uint32_t stream, uint16_t code, const char *message, struct str tail);
void fake_flush(struct fake_agent *a);
void fake_attach(struct fake_agent *a, int fd); /* a new session */
void fake_hang_up(struct fake_agent *a);        /* closes its session */
void fake_watch_event(struct fake_agent *a, uint8_t kind, const char *name);
void fake_free(struct fake_agent *a);
void fake_put_entry(struct buf *b, const char *path, uint64_t size);
/* It dies: coved says so. */
void world_end_agent(struct world *w, struct fake_agent *a, enum sup_cause cause);

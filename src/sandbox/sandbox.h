/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox: what it is, its life, its deadline, its figures. */
#pragma once

#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "sandbox/core.h"

enum sandbox_state {
    SANDBOX_CREATING,
    SANDBOX_RUNNING,
    SANDBOX_PAUSING,
    SANDBOX_PAUSED,
    SANDBOX_RESUMING,
    SANDBOX_STOPPING,
    SANDBOX_ENDED,
    SANDBOX_FAILED,
};
const char *sandbox_state_name(enum sandbox_state state);

enum { SANDBOX_TOKEN_LEN = 40 }; /* length of its tokens, of [a-z0-9] */

struct pair {
    struct str key, value;
};

struct network_spec;

/* A volume (sandbox/volume/volumes.h), or a directory of the host that the operator allows (volumes.host), and where it
 * is to be: an absolute, clean path. */
struct volume_mount {
    struct str name; /* or id; of the host's: its absolute, clean path */
    struct str path;
    bool read_only, is_host;
    struct str sub; /* this directory in it, which is there: a relative, clean path; empty: all of it */
};

/* What a façade asks for. All memory is the caller's and only read during sandbox_create(). */
struct sandbox_spec {
    struct str template_ref; /* id, alias, alias:tag */
    uint64_t timeout_ms;     /* 0: never ends by itself */
    uint64_t memory_bytes;   /* 0: the template's */
    uint32_t cpu_milli;      /* 0: the template's */
    uint64_t disk_bytes;     /* 0: the template's, then the service's */
    struct str tier;         /* its boundary; "": the template's, then the service's */
    bool pause_on_timeout;
    bool pause_files_only; /* and then without memory */
    bool auto_resume;      /* traffic resumes it */
    bool secure;           /* an access token is made */
    bool allow_internet;
    bool private_traffic;               /* a token is made that requests to its ports must show */
    const struct network_spec *network; /* sandbox/network/network.h; NULL: all or nothing, by allow_internet */
    const struct pair *envs;            /* become the environment of every process */
    size_t n_envs;
    const struct pair *metadata;
    size_t n_metadata;
    const struct volume_mount *mounts;
    size_t n_mounts;
    const char *id, *access_token; /* that were promised already: of id_sandbox() and id_token(); NULL: new ones */
    bool is_cold;                  /* a snapshot's memory is not used: a start on its files alone */
    int checkpoint;                /* guard/rules.h; CHECKPOINT_UNSET: what metadata says, then the guard's rules */
    /* For builders. */
    const char *layer; /* instead of the template's; NULL: that one */
    bool hidden;       /* listed nowhere, counted nowhere */
};

/* What anybody may read. Strings live as long as the sandbox. */
struct sandbox_info {
    uint64_t tenant;
    char id[ID_SANDBOX_LEN + 1];
    char port_alias[ID_SANDBOX_LEN + 1]; /* leads to its ports and nothing else */
    enum sandbox_state state;
    const char *template_id;
    const char *template_alias; /* NULL: none */
    const char *tier;           /* its boundary: "container" */
    usec_t started;             /* real time */
    usec_t end_at;              /* real time; 0: never. Stable: changes only when a timeout is set */
    uint64_t timeout_ms;        /* the last one asked for */
    uint32_t cpu_milli;
    uint64_t memory_bytes, disk_bytes;
    const char *access_token;  /* NULL: not secure */
    const char *traffic_token; /* NULL: public */
    bool pause_on_timeout, pause_files_only, auto_resume, secure, allow_internet;
    bool has_memory; /* paused: with its memory, */
    bool on_disk;    /* which is there, and survives the service and the machine */
    int checkpoint;  /* its own mode; CHECKPOINT_UNSET: none (life/checkpoint.h says what is in force) */
    bool hidden;
    const struct volume_mount *mounts;
    size_t n_mounts;
    const struct pair *envs;
    size_t n_envs;
    const struct pair *metadata; /* in the order given */
    size_t n_metadata;
    usec_t ended; /* real time; 0 while alive */
    /* "killed", "timeout", "exited", "signaled", "oom", "lost", "shutdown", "failed"; NULL while alive. */
    const char *end_cause;
    /* What it lacks since it was restarted on its files; NULL: nothing. */
    const char *volumes_failed; /* why some of its volumes are missing; then its start command was not run */
    const char *start_failed;   /* why its start command did */
    const char *stuck; /* what an actor does again and again: "repeat", "error", "alternation"; NULL: nothing is seen */
};

const struct sandbox_info *sandbox_info(const struct sandbox *sb);
const char *sandbox_tenant(const struct sandbox *sb); /* its tenant's name; NULL: the default one */

/* ctx, the sandbox (NULL on failure), the error (NULL on success). */
typedef void (*sandbox_fn)(void *ctx, struct sandbox *sb, const struct err *err);
void sandbox_ignore(void *ctx, struct sandbox *sb, const struct err *err); /* for who does not wait: it is in the log */

/*
 * Starts making one; done comes when the agent answers. Errors that can be known at once (validation, unknown template
 * ERR_NOT_FOUND, limits) come as -1 + *err and done is not called. There is no cancel: a client that leaves gets its
 * sandbox made and it ends by its timeout.
 */
int sandbox_create(struct core *core, const struct actor *actor, const struct sandbox_spec *spec, sandbox_fn done,
                   void *ctx, struct err *err) WARN_UNUSED;

/* Alive or just ended; NULL: unknown. Also accepts "<id>-<anything>". */
struct sandbox *sandbox_find(struct core *core, struct str id);
bool sandbox_is_hidden(struct core *core, struct str id); /* one of our own, which no list shows; also after its end */
struct sandbox *sandbox_find_by_port_alias(struct core *core, struct str alias);

/* The only live sandbox that `who` can see; NULL if it isn't exactly one. */
struct sandbox *sandbox_only(struct core *core, const struct principal *who);

/* Calls fn for every living one, newest first (started, then id), until it returns false. */
void sandbox_each(struct core *core, bool (*fn)(void *ctx, struct sandbox *sb), void *ctx);
size_t sandbox_count(const struct core *core); /* living ones */

/* What the store knows of a sandbox that has ended. Strings are valid during the call. */
struct sandbox_ended {
    const char *id, *template_id, *template_alias; /* no alias: "" */
    usec_t started, ended;
    uint32_t cpu_milli;
    uint64_t memory_bytes;
    const char *end_cause, *metadata; /* metadata: a JSON object */
    bool has_failed, secure;
};

/*
 * Ended ones that are not hidden, latest end first, until fn returns false. At most `limit` of the view are looked
 * at.
 */
int sandbox_each_ended(struct core *core, uint64_t view, size_t limit,
                       bool (*fn)(void *ctx, const struct sandbox_ended *one), void *ctx, struct err *err) WARN_UNUSED;

struct sandbox *sandbox_ref(struct sandbox *sb);
void sandbox_unref(struct sandbox *sb);

/* SIGKILL to all of it. done comes once coved confirmed; from the call on it counts as ended for everybody else.
 * Already ended: ERR_NOT_FOUND. */
int sandbox_kill(struct sandbox *sb, const struct actor *actor, sandbox_fn done, void *ctx,
                 struct err *err) WARN_UNUSED;

/* Ends at now + timeout_ms (0: at once, UINT64_MAX: never by itself). extend_only: never earlier than now set. */
int sandbox_set_timeout(struct sandbox *sb, const struct actor *actor, uint64_t timeout_ms, bool extend_only,
                        struct err *err) WARN_UNUSED;

/* Its metadata is these pairs from now on; they are copied. Limits as for a creation. */
int sandbox_set_metadata(struct sandbox *sb, const struct actor *actor, const struct pair *metadata, size_t n,
                         struct err *err) WARN_UNUSED;

/* The same of the variables of its processes, of those that start from now on. */
int sandbox_set_envs(struct sandbox *sb, const struct actor *actor, const struct pair *envs, size_t n,
                     struct err *err) WARN_UNUSED;

/* The metadata under this key: p NULL: none. And all of it but this, which is as given. */
struct str sandbox_label(const struct sandbox *sb, struct str key);
int sandbox_set_label(struct sandbox *sb, const struct actor *actor, struct str key, struct str value,
                      struct err *err) WARN_UNUSED;

/* A client refused what came out of it; that is recorded. */
struct sandbox_violation {
    struct str environment, reason;
    struct str path, commit; /* null: none is to blame */
};
int sandbox_violated(struct sandbox *sb, const struct actor *actor, const struct sandbox_violation *v,
                     struct err *err) WARN_UNUSED;

/*
 * A client took commits out of it, and notes on them what has this digest (SHA-256, hexadecimal). *ret_seq: the event
 * that says so.
 */
enum { SANDBOX_COMMITS_MAX = 100 };
struct sandbox_receipt {
    struct str environment, digest;
    const struct str *commits; /* 40 hexadecimal digits each */
    size_t n_commits;
};
int sandbox_received(struct sandbox *sb, const struct actor *actor, const struct sandbox_receipt *r, uint64_t *ret_seq,
                     struct err *err) WARN_UNUSED;

/* Figures, sampled every 5 s and kept for the sandbox's life within 4,096 samples (older ones thinned out to every
 * second one). */
struct sandbox_sample {
    usec_t at; /* real time */
    uint32_t cpu_count;
    double cpu_used_pct; /* of cpu_count CPUs */
    uint64_t memory_used, memory_total, memory_cache;
    /* Where the pool doesn't count, or sets no limit: what `df` says inside, of all that others have there, too. */
    uint64_t disk_used, disk_total;
    bool disk_is_counted, disk_is_limited;
};
/* Borrowed, oldest first. */
const struct sandbox_sample *sandbox_samples(const struct sandbox *sb, size_t *ret_n);

/* Takes one now. */
typedef void (*sandbox_sample_fn)(void *ctx, const struct sandbox_sample *sample, const struct err *err);
int sandbox_sample_now(struct sandbox *sb, sandbox_sample_fn done, void *ctx, struct err *err) WARN_UNUSED;

/* One more connection from outside to a port of it is relayed; false: it has as many as it may. */
enum { SANDBOX_RELAYS_MAX = 512 };
bool sandbox_relay_join(struct sandbox *sb);
void sandbox_relay_leave(struct sandbox *sb);

/*
 * Watches for the end: fn is called once, in a later turn, when the sandbox ends. Streams to clients use it to cut
 * their connections. Embed the struct; remove it with sandbox_unwatch() before its memory goes.
 */
struct sandbox_watch {
    struct list node;
    void (*fn)(struct sandbox_watch *w, struct sandbox *sb);
};
void sandbox_watch_end(struct sandbox *sb, struct sandbox_watch *w);
void sandbox_unwatch(struct sandbox_watch *w);

/*
 * Lines of the sandbox's log for people (lifecycle and processes), newest first; from the event log. limit: so many
 * lines at most, beginning with the last that is not younger than until_real, and out of SANDBOX_LOGS_MAX events. fn
 * returns false to stop. All in this turn of the loop: for few events.
 */
enum { SANDBOX_LOGS_MAX = 100000 };
typedef bool (*sandbox_log_fn)(void *ctx, usec_t at, const char *level, const char *logger, const char *message);
int sandbox_logs_back(struct core *core, struct str id, usec_t from_real, usec_t until_real, size_t limit,
                      sandbox_log_fn fn, void *ctx, struct err *err) WARN_UNUSED;

/*
 * The same for more than a few, a little at a time: _init_back is like the one above, _init the same forwards, newest
 * last, from the first that is not older than from_real. sandbox_log_walk_next() reads up to `events` more: 1, call
 * again in a later turn; 0, that was all. It holds nothing between calls, so what is pruned between them is left out.
 */
struct sandbox_log_walk {
    struct event_log *log;
    char id[ID_SANDBOX_LEN + 1];
    usec_t from;
    uint64_t first, next; /* forwards: next is the first that was not read; back: first to next - 1 were not */
    size_t lines, rows;   /* may still be told; may still be read */
    bool is_back, is_over;
};
int sandbox_log_walk_init(struct sandbox_log_walk *w, struct core *core, struct str id, usec_t from_real, size_t limit,
                          struct err *err) WARN_UNUSED;
int sandbox_log_walk_init_back(struct sandbox_log_walk *w, struct core *core, struct str id, usec_t from_real,
                               usec_t until_real, size_t limit, struct err *err) WARN_UNUSED;
int sandbox_log_walk_next(struct sandbox_log_walk *w, size_t events, sandbox_log_fn fn, void *ctx,
                          struct err *err) WARN_UNUSED;

/* The line of one event, for who reads the log itself. Returns what fn does. */
struct event;
bool sandbox_log_line(const struct event *e, sandbox_log_fn fn, void *ctx);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core of cove-api: the sandboxes, what may be done to them, and the record of it. Façades call in here and nowhere
 * else.
 *
 * Rules for all of src/sandbox
 *  1. One loop, one thread. Nothing blocks. No callback is called from inside the function that it was passed to:
 *     results always come in a later turn of the loop.
 *  2. Every action takes the same path (action.h): authorise, guard, record, do, record.
 *  3. A `struct sandbox *` found by sandbox_find() is valid until control returns to the loop. Whoever needs it longer
 *     takes a reference; after its end the object stays readable (state SANDBOX_ENDED), and every operation on it
 *     answers ERR_NOT_FOUND.
 *  4. A caller that loses interest in a pending operation calls its `_cancel`/`_close`; no callback comes afterwards.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "sandbox/principal.h"

#include <uv.h>

struct core;
struct store;
struct event_log;
struct guard;
struct core_webhooks;
struct holder;
struct artefacts;
struct sandbox;
struct tier_list;

enum { CORE_KEEP_EVENTS = 200000, CORE_KEEP_ENDED = 10000, CORE_KEEP_ENDED_DAYS = 7 };

struct arena;
struct sandbox_info;
struct exec_spec;

/* What a façade's clients expect to be answered on a port of 127.0.0.1 inside: by the agent, to GET and HEAD
 * (wire/proto.h says what figures there are). */
struct core_answer {
    struct str path, type, body;
    bool has_figures;
};
struct core_answers {
    uint16_t port;
    size_t (*list)(const struct sandbox_info *info, struct arena *arena, struct core_answer **ret_all);
};

/* Names that a façade's clients look for inside, in addition to Cove's own (wire/proto.h). NULL: none. */
struct core_guest {
    const char *marker, *id,
        *template_id; /* variables of every process: "true", the ids of the sandbox and its template */
    /* the prefix of the extended attributes that are a file's metadata; NULL: WIRE_ATTRIBUTES */
    const char *attributes;
};

/*
 * The engine: the machine that sandboxes are on, and what it can do. Today there is one, this machine, whose coved
 * answers wire/supervisor.h over a socket pair; sandbox/supervisor.h is its client, and all that the core knows of a
 * machine.
 *
 * What a machine on the other end of a network would need beside another client:
 * - sessions and the link to cove-egress are descriptors in answers of coved: there they are streams that are dialled
 *   by a number in the answer (of a session nothing is promised but that it is a stream);
 * - so are images, comparisons and evidence, which are written to a descriptor that goes along;
 * - SUP_RESTARTED and SUP_AGAIN carry over as they are: a connection that was lost is a coved that has died, and
 *   requests that have no answer are repeated;
 * - layers are named by digest or by an id that is nobody else's, so that one which isn't there can be fetched by its
 *   name;
 * - a home in the sandbox's id, by which whoever has the id knows the machine;
 * - how much is free, and which tiers there are, told once a second and not once at the start.
 */
struct engine {
    int supervisor_fd; /* SOCK_SEQPACKET to coved (wire/supervisor.h); owned by the core from core_open() on */
    const struct tier_list *tiers; /* which boundaries there are (wire/tiers.h); borrowed; NULL: containers */
    const char *default_tier;      /* of a request that names none, borrowed; NULL: the weakest one available */
};

struct core_config {
    const char *state_dir;         /* templates/ is read here */
    struct engine engine;          /* the machine */
    struct store *store;           /* borrowed, outlives the core */
    struct event_log *events;      /* borrowed */
    struct artefacts *artefacts;   /* the same: what is kept of long outputs */
    const char *domain;            /* for <port>-<id>.<domain>; NULL: none configured */
    uint64_t default_memory_bytes; /* for templates that say nothing */
    uint64_t default_disk_bytes;   /* likewise; 0: no limit */
    uint32_t default_cpu_milli;
    uint32_t max_sandboxes;  /* running at a time; beyond: ERR_RESOURCE_EXHAUSTED */
    uint64_t max_timeout_ms; /* larger ones: ERR_INVALID_ARGUMENT */
    uint64_t keep_ended_ms;  /* how long an ended sandbox's row, log and artefacts are kept; 0: CORE_KEEP_ENDED_DAYS */
    uint32_t keep_ended;     /* and how many at most, the latest; 0: CORE_KEEP_ENDED */
    int checkpoint;          /* guard/rules.h: of sandboxes of which nothing else says it */
    uint32_t keep_events;    /* of a sandbox that lives, at least, the latest; 0: CORE_KEEP_EVENTS */
    const struct json_t *network; /* borrowed: the policy of those that ask for none; NULL: all is allowed */
    const struct pair *envs;      /* borrowed: default variables of every process: mirrors of registries */
    size_t n_envs;
    const char *trust; /* borrowed, PEM: authorities that are trusted in every sandbox; NULL: none */
    const char *version;
    /* whose members are tenants of their own at the local socket (tenant_of_uid()); 0 or (gid_t)-1: nobody's */
    gid_t group_gid;
    const struct core_answers *answers;   /* borrowed; NULL: none */
    const struct core_guest *guest;       /* borrowed; may be NULL */
    const struct core_webhooks *webhooks; /* sandbox/webhook.h, borrowed; NULL: no webhooks */
    json_t *webhook_policy;               /* what they may reach, borrowed; NULL: all that is public */
    const struct guard *guard;            /* sandbox/guard.h, borrowed; NULL: allows everything */
    uint64_t hold_ms; /* how long an action waits for an answer when the guard asks; 0: HOLD_MS (sandbox/hold.h) */
    /*
     * coved is gone and won't return: nothing can be made or ended any more, and the worker should exit. May be NULL.
     */
    void (*on_supervisor_lost)(void *ctx);
    void *supervisor_lost_ctx;
};

/*
 * Opens the core: loads the store's live sandboxes, asks coved which of them live, re-attaches to their agents and
 * their processes, records as lost those that are gone. Blocks at start-up only for as long as coved needs to answer.
 * The strings of the config are copied.
 */
int core_open(uv_loop_t *loop, const struct core_config *config, struct core **ret_core, struct err *err) WARN_UNUSED;

/*
 * Lets go of everything; sandboxes live on. What still waits is answered ERR_UNAVAILABLE from inside, so not to be
 * called from a callback of the core. No struct sandbox may be used afterwards. The uv loop must run once more to free
 * the handles.
 */
void core_close(struct core *core);

const struct core_config *core_config(const struct core *core);
uv_loop_t *core_loop(const struct core *core);
/* Who reads a log from here on finds what was observed until now, and not only a moment later (record/keeper.c). */
void core_flush(struct core *core);

/* Who asks, for the record and the guard. The façade makes it; it is valid during the call. */
struct actor {
    /* for the record: "native:<first 8 of the key>", "native:<id of the key>", "cli:uid=0", "timer" */
    const char *name;
    struct principal who;
    struct str trace;             /* a valid traceparent (event/event.h); n 0: none */
    struct str explanation;       /* why, as the client says; n 0: it doesn't */
    bool is_own;                  /* Cove itself, for what was already allowed: no rules apply, and it is never stuck */
    const struct exec_spec *exec; /* with EVENT_EXEC_START: what the record may have cut */
    bool sets_up;                 /* part of its start: may act in a sandbox that is being resumed */
    struct holder *holder;        /* sandbox/hold.h: can wait when the guard asks; NULL: can't */
};
struct arena;
void actor_take(struct actor *actor, struct arena *arena, const char *name, const struct principal *who); /* copied */

/* SPDX-License-Identifier: Apache-2.0 */
/* What an event is: its kinds, where it comes from, how far it can be trusted, and its text for clients. The log is in
 * event/log.h. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"

/*
 * Kinds. Only names are stored, so the order here may change and a log of a newer Cove stays readable
 * (EVENT_KIND_UNKNOWN). An *action* is what a client asked for; the observations that follow carry its seq as `cause`.
 */
enum event_kind {
    EVENT_KIND_UNKNOWN = 0,

    EVENT_SANDBOX_CREATE, /* action */
    EVENT_SANDBOX_STARTED,
    EVENT_SANDBOX_FAILED,   /* could not be made, or broke */
    EVENT_SANDBOX_KILL,     /* action */
    EVENT_SANDBOX_EXPIRED,  /* its time was up */
    EVENT_SANDBOX_ENDED,    /* data.cause says why */
    EVENT_SANDBOX_TIMEOUT,  /* action: a new end was set */
    EVENT_SANDBOX_METADATA, /* action: it has other metadata */
    EVENT_SANDBOX_PAUSE,    /* action */
    EVENT_SANDBOX_PAUSED,
    EVENT_SANDBOX_RESUME, /* action */
    EVENT_SANDBOX_RESUMED,
    EVENT_SANDBOX_SNAPSHOT, /* action */
    EVENT_SANDBOX_SNAPSHOTTED,
    EVENT_SANDBOX_FORK, /* action */
    EVENT_SANDBOX_FORKED,
    EVENT_SANDBOX_CHECKPOINTED, /* its files were kept, as they were at its cause */
    EVENT_SANDBOX_REWIND,       /* action */
    EVENT_SANDBOX_REWOUND,      /* its files are those of a checkpoint */
    EVENT_SANDBOX_NEST,         /* action: namespaces within its own, for some of its processes */
    EVENT_SANDBOX_NESTED,       /* they are there, or could not be made */
    EVENT_SANDBOX_UNNESTED,     /* they are gone, with all that ran in them */

    EVENT_EXEC_START, /* action */
    EVENT_EXEC_STARTED,
    EVENT_EXEC_FAILED,
    EVENT_EXEC_OUTPUT,
    EVENT_EXEC_EXIT,
    EVENT_EXEC_CARRIED,     /* it runs still, and its beginning is about to be pruned: what of that must be known */
    EVENT_EXEC_CONNECT,     /* action: a client attached to a running process */
    EVENT_EXEC_INPUT,       /* action */
    EVENT_EXEC_CLOSE_STDIN, /* action */
    EVENT_EXEC_SIGNAL,      /* action */
    EVENT_EXEC_RESIZE,      /* action */

    EVENT_CODE_RUN, /* actions, down to CODE_REMOVE. A cell: data.context, data.code */
    EVENT_CODE_INTERRUPT,
    EVENT_CODE_RESTART,
    EVENT_CODE_REMOVE,
    EVENT_CODE_DONE, /* what came of a cell */

    EVENT_FILE_READ, /* actions, down to FILE_UNWATCH */
    EVENT_FILE_WRITE,
    EVENT_FILE_LIST,
    EVENT_FILE_STAT,
    EVENT_FILE_MKDIR,
    EVENT_FILE_MOVE,
    EVENT_FILE_REMOVE,
    EVENT_FILE_PACK,   /* a directory was read as an archive */
    EVENT_FILE_UNPACK, /* an archive was written */
    EVENT_FILE_WATCH,
    EVENT_FILE_DONE, /* outcome of a file action that went well: bytes, entries */
    EVENT_FILE_FAILED,

    EVENT_FILE_WRITTEN, /* this and PROC_*: the kernel saw it, by whatever process */
    EVENT_PROC_EXEC,
    EVENT_PROC_EXIT,

    EVENT_DIAL, /* action: a client reached a port inside */
    EVENT_DIAL_FAILED,

    EVENT_NET_POLICY, /* action: what it may reach was set */
    EVENT_NET_FAILED, /* and could not be */
    EVENT_NET_OPEN,
    EVENT_NET_CLOSE,
    EVENT_NET_FLOWS, /* too many to be told one by one: data.opened, data.closed, data.sent, data.received */
    EVENT_NET_REQUEST,
    EVENT_NET_DENIED,
    EVENT_NET_UNRESOLVED, /* an allowed name: there is none, or nobody who knows */
    EVENT_NET_MISUSE,     /* what stands for a secret went where it does not belong */
    EVENT_NET_UP,         /* its policy is in force again */
    EVENT_NET_DOWN,       /* nothing gets out */

    /* In the log of the volume, which is under its own id; those of mounts in the sandbox's, too. */
    EVENT_VOLUME_CREATE, /* action */
    EVENT_VOLUME_CREATED,
    EVENT_VOLUME_DROP, /* action */
    EVENT_VOLUME_DROPPED,
    EVENT_VOLUME_FAILED, /* it could not be made, or dropped */
    EVENT_VOLUME_MOUNTED,
    EVENT_VOLUME_UNMOUNTED,
    EVENT_VOLUME_REFUSED, /* data.what: create, drop, mount */

    /* In the log of the service (sandbox/action.h): templates, secrets, the pool. */
    EVENT_TEMPLATE_REQUEST, /* actions, down to TEMPLATE_FORGET. A build to come: data.name, data.tags */
    EVENT_TEMPLATE_BUILD,   /* it begins: data.template, data.build */
    EVENT_TEMPLATE_CANCEL,
    EVENT_TEMPLATE_TAG,
    EVENT_TEMPLATE_UNTAG,
    EVENT_TEMPLATE_PUBLISH,
    EVENT_TEMPLATE_REMOVE,
    EVENT_TEMPLATE_FORGET, /* the cache of steps */
    EVENT_TEMPLATE_UPLOAD, /* action: a file for builds */
    EVENT_TEMPLATE_BUILT,
    EVENT_TEMPLATE_FAILED, /* a build: data.reason */
    EVENT_SECRET_SET,
    EVENT_SECRET_REMOVED,
    EVENT_POOL_WARM,    /* action: so many of a template are kept ready */
    EVENT_POOL_COLLECT, /* action: what nothing needs is deleted */
    EVENT_POOL_COLLECTED,
    EVENT_KEY_CREATE, /* actions, down to TENANT_REMOVE: data.key, data.name, data.tenant */
    EVENT_KEY_ROTATE,
    EVENT_KEY_REVOKE,
    EVENT_TENANT_CREATE,
    EVENT_TENANT_SET, /* its limits */
    EVENT_TENANT_REMOVE,
    EVENT_WEBHOOK_CREATE, /* actions, down to WEBHOOK_REMOVE: data.name, data.target, data.tenant */
    EVENT_WEBHOOK_SET,
    EVENT_WEBHOOK_REMOVE,
    EVENT_WEBHOOK_FAILED, /* a delivery was given up: data.webhook, data.what */

    EVENT_LIMIT_OOM,
    EVENT_LIMIT_PIDS,
    EVENT_LIMIT_DISK,

    EVENT_GUARD_DENIED,
    EVENT_GUARD_ASKED,    /* an action waits: data.hold */
    EVENT_GUARD_JUDGED,   /* the analyser's answer: data.verdict, data.risk, data.reason */
    EVENT_GUARD_SET,      /* action: rules of a level */
    EVENT_GUARD_STUCK,    /* an actor does the same again and again: data.pattern, data.actions */
    EVENT_GUARD_ANSWERED, /* data.answer; the actor is who answered */

    EVENT_AGENT_VIOLATION, /* it broke the protocol */
    EVENT_AGENT_LOST,

    EVENT_ENV_VIOLATION, /* action: a client refused what came out of an environment */
    EVENT_ENV_RECEIVED, /* action: a client took commits out of one: data.commits, and data.digest of what it notes on them */

    EVENT_SERVICE_STARTED,   /* this, REFUSED and DENIED: in its own log */
    EVENT_SERVICE_REFUSED,   /* data.what: an action that it did not come to */
    EVENT_SERVICE_DENIED,    /* data.why: a client without a key, with a wrong one, or a user who may not */
    EVENT_SERVICE_EXPORT,    /* action: where events are exported to: data.target, "" for nowhere */
    EVENT_SERVICE_RECOVERED, /* cove-api came back and took the sandbox over */

    EVENT_LOG_SUPPRESSED, /* a flood was cut: data.kind, data.count */
    EVENT_LOG_PRUNED,     /* data.from .. data.to are no longer kept */

    EVENT_KIND_MAX,
};

enum event_source { EVENT_SOURCE_UNKNOWN = 0, EVENT_CLIENT, EVENT_AGENT, EVENT_HOST, EVENT_KERNEL, EVENT_SOURCE_MAX };

/* How far it can be trusted: seen by the host, seen by the kernel, or only claimed from inside the sandbox. */
enum event_grade {
    EVENT_GRADE_UNKNOWN = 0,
    EVENT_OBSERVED_HOST,
    EVENT_OBSERVED_KERNEL,
    EVENT_CLAIMED,
    EVENT_GRADE_MAX
};

enum {
    EVENT_ID_MAX = 63,      /* bytes of the id of a sandbox, a volume or the service */
    EVENT_ACTOR_MAX = 128,  /* a longer one is cut */
    EVENT_DATA_MAX = 16384, /* bytes of the data text; see event_append() for longer ones */
    EVENT_HASH_SIZE = 32,
    EVENT_JSON_MAX = EVENT_DATA_MAX + 2048, /* event_format_json() never needs more */
};

/* One event as read from the log. Everything is borrowed from whoever handed it out. */
struct event {
    struct str sandbox;
    uint64_t seq; /* 1, 2, 3, ... without gaps */
    usec_t time;  /* real clock */
    enum event_kind kind;
    struct str kind_name; /* also for kinds that this version does not know; the next two likewise */
    struct str source;
    struct str grade;
    struct str actor;          /* "api", "native:<key prefix>", "cli:uid=0", "" for none */
    uint64_t cause;            /* seq of the event that led to this one, 0: none */
    struct str data;           /* JSON object text */
    const unsigned char *hash; /* EVENT_HASH_SIZE bytes */
    uint64_t cursor;           /* its number in the feed; 0 where it was not read from there */
    struct str json;           /* as event_format_json() writes it, for who follows; else NULL */
};

const char *event_kind_name(enum event_kind kind); /* "sandbox.create"; "unknown" when there is no such kind */
enum event_kind event_kind_parse(struct str name);
bool event_kind_is_action(enum event_kind kind);
const char *event_source_name(enum event_source source);
const char *event_grade_name(enum event_grade grade); /* "observed-host", "observed-kernel", "claimed" */

/*
 * For API and CLI: {"sandbox":"i..","seq":7,"time":"2026-11-21T10:03:07.123456Z","kind":"exec.exit","source":"agent",
 * "grade":"claimed","actor":"","cause":5,"data":{...},"hash":"<64 hex digits>"}, no line break. Errors stick to the
 * buf.
 */
void event_format_json(const struct event *e, struct buf *b);
/* The same up to its hash, without the brace at the end; else the time is microseconds, as the hash is of it. */
void event_format_members(const struct event *e, bool for_people, struct buf *b);

/* W3C trace context, of version 00: "00-<32 hex>-<16 hex>-<2 hex>", neither id all zeroes. */
enum { EVENT_TRACEPARENT_LEN = 55 };
bool event_is_traceparent(struct str text);

/*
 * Builds the data object of an event: names and values are escaped, a value that is too long is cut (and "<name>_bytes"
 * says how long it was), and what does not fit into EVENT_DATA_MAX is left out with "truncated":true. Names are
 * literals of ours.
 *
 *   struct event_data d = EVENT_DATA_INIT;
 *   event_data_str(&d, "path", path);
 *   event_data_u64(&d, "bytes", n);
 *   draft.data = event_data_end(&d);
 *   ...
 *   event_data_fini(&d);
 */
struct event_data {
    struct buf buf;
    bool truncated;
};

#define EVENT_DATA_INIT ((struct event_data){.buf = BUF_INIT(EVENT_DATA_MAX)})
enum { EVENT_DATA_STRING_MAX = 4096 };

void event_data_str(struct event_data *d, const char *name, struct str value);
void event_data_u64(struct event_data *d, const char *name, uint64_t value);
void event_data_i64(struct event_data *d, const char *name, int64_t value);
void event_data_bool(struct event_data *d, const char *name, bool value);
void event_data_base64(struct event_data *d, const char *name, struct str value); /* raw bytes; cut like strings */
void event_data_json(struct event_data *d, const char *name,
                     struct str json);           /* a JSON value; left out when it is not one */
struct str event_data_end(struct event_data *d); /* borrowed until event_data_fini() */
void event_data_fini(struct event_data *d);

static inline UNUSED void event_data_fini_auto_(struct event_data *d)
{
    event_data_fini(d);
}
#define AUTO_EVENT_DATA __attribute__((cleanup(event_data_fini_auto_)))

/* SPDX-License-Identifier: Apache-2.0 */
/* What an event is: its kinds, where it comes from, how far it can be trusted, and its text for clients. The log is in
 * event/log.h. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"

/*
 * Kinds, and struct event_kind_info of each (event/kind.h). Only names are stored, so the order here may change and a
 * log of a newer Cove stays readable (EVENT_KIND_UNKNOWN). An *action* is what a client asked for; the observations
 * that follow carry its seq as `cause`.
 */
#define EVENT_KINDS(X)                                                                                                 \
    X(EVENT_KIND_UNKNOWN, "unknown")                                                                                   \
    X(EVENT_SANDBOX_CREATE, "sandbox.create", .action = true, .phase = "creating")                                     \
    X(EVENT_SANDBOX_STARTED, "sandbox.started", .phase = "running")                                                    \
    X(EVENT_SANDBOX_FAILED, "sandbox.failed", .phase = "failed", .last = true) /* could not be made, or broke */       \
    X(EVENT_SANDBOX_KILL, "sandbox.kill", .action = true, .phase = "stopping")                                         \
    X(EVENT_SANDBOX_EXPIRED, "sandbox.expired")                             /* its time was up */                      \
    X(EVENT_SANDBOX_ENDED, "sandbox.ended", .phase = "ended", .last = true) /* data.cause says why */                  \
    X(EVENT_SANDBOX_TIMEOUT, "sandbox.timeout", .action = true)             /* a new end was set */                    \
    X(EVENT_SANDBOX_METADATA, "sandbox.metadata", .action = true)           /* it has other metadata */                \
    X(EVENT_SANDBOX_PAUSE, "sandbox.pause", .action = true, .phase = "pausing")                                        \
    X(EVENT_SANDBOX_PAUSED, "sandbox.paused", .phase = "paused")                                                       \
    X(EVENT_SANDBOX_RESUME, "sandbox.resume", .action = true, .phase = "resuming")                                     \
    X(EVENT_SANDBOX_RESUMED, "sandbox.resumed", .phase = "running")                                                    \
    X(EVENT_SANDBOX_SNAPSHOT, "sandbox.snapshot", .action = true)                                                      \
    X(EVENT_SANDBOX_SNAPSHOTTED, "sandbox.snapshotted")                                                                \
    X(EVENT_SANDBOX_FORK, "sandbox.fork", .action = true)                                                              \
    X(EVENT_SANDBOX_FORKED, "sandbox.forked")                                                                          \
    X(EVENT_SANDBOX_CHECKPOINTED, "sandbox.checkpointed") /* its files were kept, as they were at its cause */         \
    X(EVENT_SANDBOX_REWIND, "sandbox.rewind", .action = true)                                                          \
    X(EVENT_SANDBOX_REWOUND, "sandbox.rewound")           /* its files are those of a checkpoint */                    \
    X(EVENT_SANDBOX_NEST, "sandbox.nest", .action = true) /* namespaces within its own, for some of its processes */   \
    X(EVENT_SANDBOX_NESTED, "sandbox.nested")             /* they are there, or could not be made */                   \
    X(EVENT_SANDBOX_UNNESTED, "sandbox.unnested")         /* they are gone, with all that ran in them */               \
    X(EVENT_EXEC_START, "exec.start", .action = true)                                                                  \
    X(EVENT_EXEC_STARTED, "exec.started")                                                                              \
    X(EVENT_EXEC_FAILED, "exec.failed")                                                                                \
    X(EVENT_EXEC_OUTPUT, "exec.output")                                                                                \
    X(EVENT_EXEC_EXIT, "exec.exit")                                                                                    \
    /* it runs still, and its beginning is about to be pruned: what of that must be known */                           \
    X(EVENT_EXEC_CARRIED, "exec.carried")                                                                              \
    X(EVENT_EXEC_CONNECT, "exec.connect", .action = true) /* a client attached to a running process */                 \
    X(EVENT_EXEC_INPUT, "exec.input", .action = true)                                                                  \
    X(EVENT_EXEC_CLOSE_STDIN, "exec.close_stdin", .action = true)                                                      \
    X(EVENT_EXEC_SIGNAL, "exec.signal", .action = true)                                                                \
    X(EVENT_EXEC_RESIZE, "exec.resize", .action = true)                                                                \
    X(EVENT_CODE_RUN, "code.run", .action = true) /* A cell: data.context, data.code */                                \
    X(EVENT_CODE_INTERRUPT, "code.interrupt", .action = true)                                                          \
    X(EVENT_CODE_RESTART, "code.restart", .action = true)                                                              \
    X(EVENT_CODE_REMOVE, "code.remove", .action = true)                                                                \
    X(EVENT_CODE_DONE, "code.done") /* what came of a cell */                                                          \
    X(EVENT_FILE_READ, "file.read", .action = true)                                                                    \
    X(EVENT_FILE_WRITE, "file.write", .action = true)                                                                  \
    X(EVENT_FILE_LIST, "file.list", .action = true)                                                                    \
    X(EVENT_FILE_STAT, "file.stat", .action = true)                                                                    \
    X(EVENT_FILE_MKDIR, "file.mkdir", .action = true)                                                                  \
    X(EVENT_FILE_MOVE, "file.move", .action = true)                                                                    \
    X(EVENT_FILE_REMOVE, "file.remove", .action = true)                                                                \
    X(EVENT_FILE_PACK, "file.pack", .action = true)     /* a directory was read as an archive */                       \
    X(EVENT_FILE_UNPACK, "file.unpack", .action = true) /* an archive was written */                                   \
    X(EVENT_FILE_WATCH, "file.watch", .action = true)                                                                  \
    X(EVENT_FILE_DONE, "file.done") /* outcome of a file action that went well: bytes, entries */                      \
    X(EVENT_FILE_FAILED, "file.failed")                                                                                \
    X(EVENT_FILE_WRITTEN, "file.written") /* this and PROC_*: the kernel saw it, by whatever process */                \
    X(EVENT_PROC_EXEC, "proc.exec")                                                                                    \
    X(EVENT_PROC_EXIT, "proc.exit")                                                                                    \
    X(EVENT_DIAL, "dial", .action = true) /* a client reached a port inside */                                         \
    X(EVENT_DIAL_FAILED, "dial.failed")                                                                                \
    X(EVENT_NET_POLICY, "net.policy", .action = true) /* what it may reach was set */                                  \
    X(EVENT_NET_FAILED, "net.failed")                 /* and could not be */                                           \
    X(EVENT_NET_OPEN, "net.open")                                                                                      \
    X(EVENT_NET_CLOSE, "net.close")                                                                                    \
    /* too many to be told one by one: data.opened, data.closed, data.sent, data.received */                           \
    X(EVENT_NET_FLOWS, "net.flows")                                                                                    \
    X(EVENT_NET_REQUEST, "net.request")                                                                                \
    X(EVENT_NET_DENIED, "net.denied")                                                                                  \
    X(EVENT_NET_UNRESOLVED, "net.unresolved") /* an allowed name: there is none, or nobody who knows */                \
    X(EVENT_NET_MISUSE, "net.misuse")         /* what stands for a secret went where it does not belong */             \
    X(EVENT_NET_UP, "net.up")                 /* its policy is in force again */                                       \
    X(EVENT_NET_DOWN, "net.down")             /* nothing gets out */                                                   \
    /* In the log of the volume, which is under its own id; those of mounts in the sandbox's, too. */                  \
    X(EVENT_VOLUME_CREATE, "volume.create", .action = true)                                                            \
    X(EVENT_VOLUME_CREATED, "volume.created")                                                                          \
    X(EVENT_VOLUME_DROP, "volume.drop", .action = true)                                                                \
    X(EVENT_VOLUME_DROPPED, "volume.dropped")                                                                          \
    X(EVENT_VOLUME_FAILED, "volume.failed") /* it could not be made, or dropped */                                     \
    X(EVENT_VOLUME_MOUNTED, "volume.mounted")                                                                          \
    X(EVENT_VOLUME_UNMOUNTED, "volume.unmounted")                                                                      \
    X(EVENT_VOLUME_REFUSED, "volume.refused") /* data.what: create, drop, mount */                                     \
    /* In the log of the service (sandbox/action.h): templates, secrets, the pool. */                                  \
    X(EVENT_TEMPLATE_REQUEST, "template.request", .action = true) /* A build to come: data.name, data.tags */          \
    X(EVENT_TEMPLATE_BUILD, "template.build", .action = true)     /* it begins: data.template, data.build */           \
    X(EVENT_TEMPLATE_CANCEL, "template.cancel", .action = true)                                                        \
    X(EVENT_TEMPLATE_TAG, "template.tag", .action = true)                                                              \
    X(EVENT_TEMPLATE_UNTAG, "template.untag", .action = true)                                                          \
    X(EVENT_TEMPLATE_PUBLISH, "template.publish", .action = true)                                                      \
    X(EVENT_TEMPLATE_REMOVE, "template.remove", .action = true)                                                        \
    X(EVENT_TEMPLATE_FORGET, "template.forget", .action = true) /* the cache of steps */                               \
    X(EVENT_TEMPLATE_UPLOAD, "template.upload", .action = true) /* a file for builds */                                \
    X(EVENT_TEMPLATE_BUILT, "template.built")                                                                          \
    X(EVENT_TEMPLATE_FAILED, "template.failed") /* a build: data.reason */                                             \
    X(EVENT_SECRET_SET, "secret.set")                                                                                  \
    X(EVENT_SECRET_REMOVED, "secret.removed")                                                                          \
    X(EVENT_POOL_WARM, "pool.warm", .action = true)       /* so many of a template are kept ready */                   \
    X(EVENT_POOL_COLLECT, "pool.collect", .action = true) /* what nothing needs is deleted */                          \
    X(EVENT_POOL_COLLECTED, "pool.collected")                                                                          \
    X(EVENT_KEY_CREATE, "key.create", .action = true) /* data.key, data.name, data.tenant */                           \
    X(EVENT_KEY_ROTATE, "key.rotate", .action = true)                                                                  \
    X(EVENT_KEY_REVOKE, "key.revoke", .action = true)                                                                  \
    X(EVENT_TENANT_CREATE, "tenant.create", .action = true)                                                            \
    X(EVENT_TENANT_SET, "tenant.set", .action = true) /* its limits */                                                 \
    X(EVENT_TENANT_REMOVE, "tenant.remove", .action = true)                                                            \
    X(EVENT_WEBHOOK_CREATE, "webhook.create", .action = true) /* data.name, data.target, data.tenant */                \
    X(EVENT_WEBHOOK_SET, "webhook.set", .action = true)                                                                \
    X(EVENT_WEBHOOK_REMOVE, "webhook.remove", .action = true)                                                          \
    X(EVENT_WEBHOOK_FAILED, "webhook.failed") /* a delivery was given up: data.webhook, data.what */                   \
    X(EVENT_LIMIT_OOM, "limit.oom")                                                                                    \
    X(EVENT_LIMIT_PIDS, "limit.pids")                                                                                  \
    X(EVENT_LIMIT_DISK, "limit.disk")                                                                                  \
    X(EVENT_LIMIT_TENANT, "limit.tenant") /* of the service: data.tenant's disk is full, with all that it has there */ \
    X(EVENT_GUARD_DENIED, "guard.denied")                                                                              \
    X(EVENT_GUARD_ASKED, "guard.asked")             /* an action waits: data.hold */                                   \
    X(EVENT_GUARD_JUDGED, "guard.judged")           /* the analyser's answer: data.verdict, data.risk, data.reason */  \
    X(EVENT_GUARD_SET, "guard.set", .action = true) /* rules of a level */                                             \
    X(EVENT_GUARD_STUCK, "guard.stuck")       /* an actor does the same again and again: data.pattern, data.actions */ \
    X(EVENT_GUARD_ANSWERED, "guard.answered") /* data.answer; the actor is who answered */                             \
    X(EVENT_AGENT_VIOLATION, "agent.violation") /* it broke the protocol */                                            \
    X(EVENT_AGENT_LOST, "agent.lost")                                                                                  \
    X(EVENT_ENV_VIOLATION, "env.violation", .action = true) /* a client refused what came out of an environment */     \
    /* a client took commits out of one: data.commits, and data.digest of what it notes on them */                     \
    X(EVENT_ENV_RECEIVED, "env.received", .action = true)                                                              \
    X(EVENT_SERVICE_STARTED, "service.started") /* this, REFUSED and DENIED: in its own log */                         \
    X(EVENT_SERVICE_REFUSED, "service.refused") /* data.what: an action that it did not come to */                     \
    /* data.why: a client without a key, with a wrong one, or a user who may not */                                    \
    X(EVENT_SERVICE_DENIED, "service.denied")                                                                          \
    /* where events are exported to: data.target, "" for nowhere */                                                    \
    X(EVENT_SERVICE_EXPORT, "service.export", .action = true)                                                          \
    X(EVENT_SERVICE_RECOVERED, "service.recovered") /* cove-api came back and took the sandbox over */                 \
    X(EVENT_LOG_SUPPRESSED, "log.suppressed")       /* a flood was cut: data.kind, data.count */                       \
    X(EVENT_LOG_PRUNED, "log.pruned")               /* data.from .. data.to are no longer kept */
#define EVENT_KIND_MEMBER(kind, ...) kind,
enum event_kind { EVENT_KINDS(EVENT_KIND_MEMBER) EVENT_KIND_MAX };

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
 *   struct event_data d = EVENT_DATA(DATA_STR("path", path), DATA_U64("bytes", n));
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

static inline UNUSED struct str event_text_(struct str text)
{
    return text;
}

/* Several of these at once, by EVENT_DATA() for a new object and EVENT_DATA_PUT() for one that there is. Texts are a
 * struct str or a string. */
struct event_member {
    const char *name;
    enum { EVENT_MEMBER_STR, EVENT_MEMBER_JSON, EVENT_MEMBER_U64, EVENT_MEMBER_I64, EVENT_MEMBER_BOOL } kind;
    bool may_lack; /* left out when it is 0, false, or a text without a pointer */
    struct str text;
    uint64_t n;
};
#define DATA_TEXT(x) _Generic((x), struct str : event_text_, default : str_of)(x)
#define EVENT_MEMBER(name, kind, may_lack, text, n)                                                                    \
    ((struct event_member){(name), EVENT_MEMBER_##kind, (may_lack), text, (n)})
#define EVENT_NO_TEXT ((struct str){NULL, 0})
#define DATA_STR(name, x) EVENT_MEMBER(name, STR, false, DATA_TEXT(x), 0)
#define DATA_SOME(name, x) EVENT_MEMBER(name, STR, true, DATA_TEXT(x), 0)
#define DATA_JSON(name, x) EVENT_MEMBER(name, JSON, false, DATA_TEXT(x), 0)
#define DATA_U64(name, x) EVENT_MEMBER(name, U64, false, EVENT_NO_TEXT, x)
#define DATA_COUNT(name, x) EVENT_MEMBER(name, U64, true, EVENT_NO_TEXT, x)
#define DATA_I64(name, x) EVENT_MEMBER(name, I64, false, EVENT_NO_TEXT, (uint64_t)(x))
#define DATA_BOOL(name, x) EVENT_MEMBER(name, BOOL, false, EVENT_NO_TEXT, (x) ? 1 : 0)
#define DATA_FLAG(name, x) EVENT_MEMBER(name, BOOL, true, EVENT_NO_TEXT, (x) ? 1 : 0)
#define EVENT_MEMBERS(...)                                                                                             \
    (const struct event_member[]){__VA_ARGS__},                                                                        \
        sizeof((const struct event_member[]){__VA_ARGS__}) / sizeof(struct event_member)
#define EVENT_DATA_PUT(d, ...) event_data_put((d), EVENT_MEMBERS(__VA_ARGS__))
#define EVENT_DATA(...) event_data_of(EVENT_MEMBERS(__VA_ARGS__))
void event_data_put(struct event_data *d, const struct event_member *members, size_t n);
struct event_data event_data_of(const struct event_member *members, size_t n);

static inline UNUSED void event_data_fini_auto_(struct event_data *d)
{
    event_data_fini(d);
}
#define AUTO_EVENT_DATA __attribute__((cleanup(event_data_fini_auto_)))

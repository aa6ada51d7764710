/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this façade share. Private to src/api/opensandbox. */
#pragma once

#include "api/kit/call.h"
#include "api/opensandbox/opensandbox.h"
#include "base/map.h"
#include "sandbox/network/network.h"

enum { OPENSANDBOX_EXECD_PORT = 44772, OPENSANDBOX_EGRESS_PORT = 18080, COMMAND_ID_LEN = 20, DIGEST_LEN = 32 };

/* What it says of a sandbox that the core has no place for stands in the metadata, under names that clients can't
 * use. */
#define OPENSANDBOX_RESERVED "opensandbox.io/"

struct opensandbox {
    struct facade lifecycle, execd, egress;
    const struct proxied *proxied;    /* that is being served (proxy.c) */
    char request_id[ID_UUID_LEN + 1]; /* of the request that is being served, when its client gave none */
    struct builder *builder;          /* NULL: none */
    struct map pending;               /* id -> struct pending (pending.c) */
    struct timer pending_timer;
    struct map commands;                       /* id -> struct osb_command (command.c) */
    char without_bash[64][ID_SANDBOX_LEN + 1]; /* some of the sandboxes that are known to be */
    struct map ptys;                           /* id -> struct pty (pty.c) */
    struct map operations;                     /* of the sandbox with this id (operations.c) */
    char instance[COMMAND_ID_LEN + 1];         /* this worker's */
    struct map isolated;                       /* id -> struct isolated (isolated.c) */
    struct list isolating;                     /* those that are being made */
    struct map cells;                          /* id -> struct code_stream (code.c): those that run or wait */
    struct list ended;                         /* of those, the first ended longest ago */
    size_t n_ended;
    struct list entries; /* entrypoints that run (hooks.c) */
};

/* n characters of [a-z0-9], at most 32, that stand for the text. */
void opensandbox_digest(struct str text, char *to, size_t n);

/* With a code that none of ours stands for. False, as call_fail(). */
bool opensandbox_fail(struct call *c, int status, const char *code, const char *message);

/* Routes, by file. */
extern const struct route lifecycle_routes[], command_routes[], code_routes[], file_routes[], egress_routes[];
extern const size_t lifecycle_n_routes, command_n_routes, code_n_routes, file_n_routes, egress_n_routes;

/* opensandbox.c: NULL: answered. */
struct sandbox *opensandbox_find(struct call *c, struct str id);

/* proxy.c: "/v1/sandboxes/{id}/proxy/{port}[/...]", and who asks. */
struct proxied {
    struct str id, ticket, rest; /* ticket: of a signed endpoint; p NULL: none */
    uint64_t port;
    struct sandbox *sb; /* NULL: none, or not for who asks */
    struct principal who;
    const char *why; /* it is refused; NULL: it is not */
    enum refusal refusal;
    bool by_key;
};
bool proxy_parse(struct str path, struct proxied *p); /* the first line of it */
bool proxy_serve(struct opensandbox *o, struct http_request *req);
bool proxy_authenticate(struct call *c);
struct sandbox *proxy_find_sandbox(struct call *c);
void proxy_endpoint(struct call *c);
/* What opens this port of the sandbox until then, with its dash in front; and whether one does (NULL), without. Port 0:
 * its diagnostics. */
enum { PROXY_TICKET_MAX = 128 };
void proxy_ticket(const struct sandbox_info *i, uint64_t port, uint64_t expires, char to[static PROXY_TICKET_MAX]);
const char *proxy_check_ticket(const struct sandbox_info *i, uint64_t port, struct str ticket);

/* diagnostics.c */
route_handler diagnostics_get, diagnostics_content, diagnostics_inspect, diagnostics_telemetry;

/* lifecycle.c */
#define RENEW_KEY "renew" /* seconds; access.renew.extend.seconds */
json_t *lifecycle_sandbox(const struct sandbox *sb);
/* What the answer is about a sandbox that is not there yet. */
struct pending;
struct template;
void lifecycle_of_pending(struct call *c, struct pending *p);

/* pending.c */
#define PENDING_FAILED "IMAGE_PULL_FAILED"
void pendings_init(struct opensandbox *o);
void pendings_free(struct opensandbox *o);
const char *pending_name(struct arena *a, struct str uri,
                         bool is_private); /* of the template that stands for the image */
void pending_begin(struct call *c, struct str uri);
struct pending *pending_find(struct call *c, struct str id);     /* NULL: none, or not for who asks */
const char *pending_token(struct opensandbox *o, struct str id); /* NULL: none */
uint64_t pending_tenant(struct opensandbox *o, struct str id);   /* of one that there is */
const char *pending_why(struct opensandbox *o, struct call *c,
                        struct str id); /* NULL: it has not failed, or is not for who asks */
json_t *pending_json(const struct pending *p);
void pending_each(struct call *c, json_t *(*to)(void *ctx, const char *state, const json_t *metadata), void *ctx);
void pending_remove(struct call *c, struct pending *p);

/* create.c */
void create_sandbox(struct call *c);
/* The same in pieces, for a body that waited. All memory is the arena's; NULL: err says why. */
struct osb_creation;
struct osb_hooks;
struct osb_creation *create_read(struct opensandbox *o, const struct actor *actor, struct arena *a, json_t *body,
                                 const char *template_name, struct err *err);
int create_begin_as(struct osb_creation *r, const char *id, const char *token, sandbox_fn done, void *ctx,
                    struct err *err) WARN_UNUSED;
void create_began(const struct osb_creation *r, struct sandbox *sb);       /* its entrypoint and hooks */
int create_check_label(struct str key, struct str value, struct err *err); /* a pair of metadata */
void create_drop(struct osb_creation *r);                                  /* NULL is fine */

/* operations.c. A route of this kind makes what others make, once, and answers with JSON. */
#define OPERATION_ROUTE "operation"
void operations_free_all(struct opensandbox *o);
/* What was asked for is under way, or made and answered with that; and what came of it: false, nobody wants to know. c:
 * to be answered; NULL: nobody. */
void operation_claim(struct call *c, bool is_made);
bool operation_settle(struct opensandbox *o, const char *sandbox, const char *id, bool is_made, struct call *c);
void operation_full(struct call *c); /* 503 */
void operation_digest_body(const struct call *c,
                           char to[static DIGEST_LEN + 1]); /* the same for what asks for the same */
route_handler operation_show_instance, operation_show, operation_command, operation_pty;

/* command.c */
void commands_free(struct opensandbox *o);
bool command_runs(const struct opensandbox *o, const char *id);

#define COMMAND_OPERATION_HEADER "x-execd-operation-id" /* of those that their client may ask for again */

/* Inside, root's alone: logs of commands in the background, and sessions; and what makes it before it is written to. */
#define COMMAND_DIRECTORY "/run/cove-opensandbox"
#define COMMAND_MAKE_DIRECTORY "mkdir -pm 700 " COMMAND_DIRECTORY " && [ -O " COMMAND_DIRECTORY " ]"
bool command_is_id(struct str id);
void command_status(
    struct call *c); /* of the command args[0]; a run of the isolated session args[1], if there is one */
/* When the last one there ended, in real time, UINT64_MAX while one runs; 0: there was none. */
usec_t command_last(struct opensandbox *o, const struct sandbox *there);
bool command_is_background(struct call *c, struct str id); /* and runs */
bool command_is_elsewhere(struct call *c, struct str id);  /* another session's */
/* The same when the handler runs again, lest what was allowed be another action. It stands where the route has no
 * argument. */
const char *command_id_once(struct call *c);
bool command_has_bash(struct opensandbox *o, const struct sandbox *there); /* as far as is known */
/* Starts it and answers with its stream, or why not. */
void command_run(struct call *c, const struct exec_spec *spec, struct str content, bool is_background, const char *id);

/* sse.c. Events of a stream: bare JSON objects, a blank line behind each. */
enum { SSE_LINE_MAX = 64 * 1024, SSE_PING_MS = 3000 };
struct sse_lines {
    struct buf rest; /* made with SSE_LINE_MAX */
    bool after_cr;
};
void sse_start(struct call *c);
void sse_ping(struct call *c);
void sse_begin(struct buf *b, const char *type); /* what follows is of it, up to "}\n\n" */
void sse_text(struct buf *b, const char *type, struct str text);
void sse_complete(struct buf *b, usec_t took);
void sse_error(struct buf *b, const char *value, const char *trace);
void sse_lines_take(struct sse_lines *l, const char *type, struct str bytes, struct buf *b); /* one event a line */
void sse_line_flush(struct sse_lines *l, const char *type, struct buf *b);                   /* what is left of one */

/* report.c */
void report_status(struct call *c, const char *content, const char *error, usec_t started, usec_t ended, bool runs,
                   int exit_code);    /* answers as command_status() */
void report_recorded(struct call *c); /* the status of a command that is not in memory */
route_handler report_log, report_metrics, report_metrics_watch;

/* isolated.c */
void isolated_free_all(struct opensandbox *o);
/* What is behind "/v1/isolated/session/{id}" in execd's path, with its slash; p NULL: it is not of a session. */
struct str isolated_rest(struct str path, struct str *ret_id);
/* What the path is about: the session's nest, or the sandbox itself. NULL: answered. */
struct sandbox *isolated_nest(struct call *c, struct sandbox *sb, struct str path);
route_handler isolated_capabilities, isolated_list, isolated_make, isolated_get, isolated_remove, isolated_run;
void isolated_began(struct call *c, const char *id, usec_t started); /* a run in the background */
route_handler isolated_run_status, isolated_run_log, isolated_stub;

/* pty.c */
void ptys_free(struct opensandbox *o);
bool pty_retire(struct opensandbox *o, const char *id); /* unless it runs; false: it does */
route_handler pty_make, pty_status, pty_remove, pty_attach;

/*
 * pty_message.c: the messages of a terminal, and what its client says as records that wait for the process.
 *
 *   binary, from us: 1 stdout or terminal, 2 stderr, 3 replay (8 bytes of offset, big-endian, in front); to us: 0 stdin
 *   text, from us: connected, exit, error, pong; to us: stdin, resize, signal, ping
 */
enum pty_frame { PTY_FRAME_STDIN, PTY_FRAME_STDOUT, PTY_FRAME_STDERR, PTY_FRAME_REPLAY };
enum pty_record { PTY_RECORD_STDIN, PTY_RECORD_RESIZE, PTY_RECORD_SIGNAL };
enum pty_message { PTY_MESSAGE_TAKEN, PTY_MESSAGE_PING, PTY_MESSAGE_WRONG };

/* Appends the record that it asks for, if any; in's error sticks. is_pipe: signals are signals; a terminal turns some
 * keys into them. WRONG: err says why. */
enum pty_message pty_message_read(bool is_text, struct str message, bool is_pipe, struct buf *in, struct err *err);

/* The first of those; data is a size of two uint16_t, a signal of a byte, or bytes. False: there is none. */
bool pty_record_take(struct str *in, int *ret_kind, struct str *ret_data);

/* The frame with what was written since that offset, as far as it is kept: the end of what was written in all. Nothing,
 * when there is nothing. */
void pty_message_replay(struct buf *b, struct str kept, uint64_t written, uint64_t since);

/* pools.c */
#define POOL_KEY "pool" /* reserved metadata: the template's id */
uint32_t pools_allocated(const struct core *core,
                         const struct template *t); /* sandboxes that were taken from it, and live */
route_handler pools_list, pools_get, pools_make, pools_set, pools_remove;

/* egress.c. The policy, and what is kept beside it: done() answers, if it is. */
void egress_set(struct call *c, json_t *policy, const json_t *fields, network_fn done);
json_t *egress_read_policy(const json_t *network, struct err *err); /* ours, of theirs; NULL: ERR_INVALID_ARGUMENT */

/* vault.c */
route_handler credential_vault_make, credential_vault_get, credential_vault_get_one, credential_vault_patch,
    credential_vault_remove;

/* hooks.c: the entrypoint of a sandbox and its hooks ("lifecycle": preStart, periodic). */
#define OPENSANDBOX_TAG "opensandbox:" /* of their processes, in front of what they are */
#define OPENSANDBOX_PERIODIC "periodic:"
#define OPENSANDBOX_END "end" /* reserved metadata: whose entrypoint ended, and how */
#define OPENSANDBOX_PRE_FAILED "preStart failed"

enum { SCHEDULE_FIELDS = 5 };

struct schedule {
    uint64_t every_s;  /* 0: by the pattern */
    char pattern[768]; /* an extended regular expression for "minute hour day month weekday", without ' */
};

/* Five fields of cron, "@daily" and its like, "@every 1h30m". */
int schedule_parse(struct str text, struct schedule *ret_schedule) WARN_UNUSED;
int schedule_duration(struct str text, uint64_t *ret_s) WARN_UNUSED; /* "1h30m", "90s"; at least a second */

/* What the body asks for; all memory is the arena's. */
int hooks_read(const json_t *body, struct arena *a, struct osb_hooks **ret_hooks, struct err *err) WARN_UNUSED;
void hooks_start(struct opensandbox *o, struct arena *a, const struct osb_hooks *hooks, const struct str *entrypoint,
                 size_t n_entrypoint, struct sandbox *sb, const struct actor *actor);
void hooks_free(struct opensandbox *o);

/* vault_document.c: what a client says of its credential vault: credentials and bindings, checked. */
#define VAULT_STORE_HOST "credential-vault.invalid" /* where values stand that no binding uses: no host of anybody */
enum { VAULT_NAME_MAX = 63, VAULT_VALUE_MAX = 8192, VAULT_PLACEHOLDER_MAX = 512 };

/* ret_value, made with 2 * VAULT_VALUE_MAX: the value as a policy has it, so that nothing in it is a reference to a
 * secret. */
int vault_read_value(const json_t *one, struct str *ret_name, struct buf *ret_value, struct err *err) WARN_UNUSED;

/* values: an object with the names of all credentials. A binding has no member that is not known, so that no value can
 * hide in it. */
int vault_check_binding(const json_t *values, const json_t *policy, const json_t *one, struct str *ret_name,
                        struct err *err) WARN_UNUSED;

/* What is kept of a checked one: with what its "match" leaves out. Ports that are the schemes' own go without
 * saying. */
json_t *vault_row(const json_t *binding, int64_t revision);

const char *vault_used(const json_t *binding, size_t i); /* the names of its credentials; NULL: no more */
bool vault_collide(const json_t *a, const json_t *b);    /* two bindings may match the same request */

/* session.c */
/* The command and arguments of spec, for a shell. log: the command's id when its output goes into its file, else "";
 * uid, gid: -1 as it is. */
void session_shell(struct call *c, struct exec_spec *spec, struct str log, int64_t uid, int64_t gid,
                   struct str command);
/* The command that these are of, as the log tells them. */
const char *session_content(const json_t *start);
route_handler session_command, session_make, session_run_command, session_remove;
/* Runs a shell script as root: done gets its exit status and the first bytes of what it wrote. It ends with the
 * call. */
enum { SCRIPT_OUTPUT_MAX = 64 * 1024 };
void script_run(struct call *c, const char *script, const struct str *args, size_t n_args,
                void (*done)(struct call *c, uint32_t code, struct str output));

/* files.c: {owner, group, mode} of a path as four arguments of a script that FILES_APPLY is part of; NULL: answered. */
enum { FILES_PATHS_MAX = 1024 };
#define FILES_APPLY                                                                                                    \
    "[ -z \"$2$3\" ] || chown -- \"$2${3:+:$3}\" \"$1\" || exit 1; [ -z \"$4\" ] || chmod -- \"$4\" \"$1\" || exit 1; "
/*
 * With "~", $NAME and ${NAME}; the arena's. n 0: too long, empty, too many names, or one that the sandbox doesn't
 * have.
 */
struct str files_path(struct call *c, struct str path);
struct str files_query_path(struct call *c); /* "path"; n 0: answered */
const struct str *files_permissions(struct call *c, const char *path, const json_t *one, struct str *to);
void files_script_done(struct call *c, uint32_t code, struct str output);

/* transfer.c */
route_handler transfer_download, transfer_upload;

static inline struct opensandbox *opensandbox_of(const struct call *c)
{
    return c->facade->ops->find_sandbox == proxy_find_sandbox ? container_of(c->facade, struct opensandbox, egress)
                                                              : container_of(c->facade, struct opensandbox, execd);
}

static inline struct opensandbox *lifecycle_of(const struct call *c)
{
    return container_of(c->facade, struct opensandbox, lifecycle);
}

static inline struct opensandbox *opensandbox_of_execd(const struct call *c)
{
    return container_of(c->facade, struct opensandbox, execd);
}

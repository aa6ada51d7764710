/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this façade share. Private to src/api/mcp. */
#pragma once

#include "api/kit/file_body.h"
#include "api/mcp/mcp.h"
#include "base/json.h"
#include "base/map.h"

enum {
    MCP_TEXT_MAX = 48 * 1024,   /* of an output or a file in one answer: the rest comes by a cursor */
    MCP_FILE_MAX = 1024 * 1024, /* of a file that is edited, or read as a resource */
    MCP_ITEMS_MAX = 500,        /* of a list in one answer */
    MCP_SCAN_MAX = 2000,        /* events that one answer looks at */
    MCP_ID_LEN = 24,
    MCP_EXEC_S = 120, /* a command that is waited for */
};

struct mcp {
    struct facade facade;
    struct mcp_config config;
    json_t *tools;       /* the answer to tools/list */
    struct map sessions; /* id -> struct mcp_session */
    struct list used;    /* of those, the one used longest ago first */
    struct map jobs;     /* id -> struct job: commands in the background (exec.c) */
    struct list ended;   /* of those, the first ended longest ago */
    size_t n_ended;
    unsigned char secret[32]; /* what signs the state of questions (grant.c) */
};

static inline struct mcp *mcp_of(const struct call *c)
{
    return container_of(c->facade, struct mcp, facade);
}

/* ---- a request ---- */

enum mcp_rights { MCP_READS, MCP_USES };
enum mcp_tool_flags {
    MCP_SANDBOX = 1,     /* its argument "sandbox" names one: c->sandbox */
    MCP_WIDE = 2,        /* reaches beyond one sandbox, or changes what it may: not for keys of one sandbox */
    MCP_HARMLESS = 4,    /* readOnlyHint */
    MCP_DESTRUCTIVE = 8, /* destructiveHint */
    MCP_ABSENT = 16,     /* in no list: it says why */
};

struct mcp_tool {
    const char *name, *description;
    /*
     * "name TYPE what it is|...": TYPE is s(tring), i(nteger), b(oolean), S(trings), I(ntegers), o(bject of strings) or j (an object),
     * with ! for a must
     */
    const char *args;
    const char *renames; /* "theirs=ours ...", of arguments; "theirs=": is dropped. NULL: none */
    void (*handler)(struct call *c);
    enum mcp_rights rights;
    unsigned flags;
};
extern const struct mcp_tool mcp_tools[];
extern const size_t mcp_n_tools;

struct mcp_session;

/* c->state of each call that is understood so far; in http_arena(). */
struct mcp_call {
    const json_t *id, *params; /* of the request; borrowed from c->body */
    const struct mcp_tool *tool;
    json_t *args;                /* of the tool; the same */
    const json_t *capabilities;  /* of a client that has no session */
    struct mcp_session *session; /* NULL: none */
    bool is_modern;
    const json_t *token;             /* of its progress; NULL: none is wanted */
    usec_t told;                     /* when progress was told last */
    usec_t until;                    /* monotonic; 0: it may take as long as it does */
    char ask[MCP_ID_LEN + 1];        /* id of the question that its client was asked; "": none */
    void (*cleanup)(struct call *c); /* of the tool */
    void *own;                       /* of the tool */
};

static inline struct mcp_call *mcp_call_of(const struct call *c)
{
    return c->state;
}

/* Codes of JSON-RPC and of the protocol. */
enum {
    RPC_PARSE = -32700,
    RPC_REQUEST = -32600,
    RPC_METHOD = -32601,
    RPC_PARAMS = -32602,
    RPC_INTERNAL = -32603,
    RPC_REFUSED = -32001, /* of Cove: no key, a wrong one, no such session */
    RPC_HEADER = -32020,
    RPC_CAPABILITY = -32021,
    RPC_VERSION = -32022,
};

/* The answers. Each ends the call. result and data are taken; result NULL: out of memory. */
void rpc_result(struct call *c, json_t *result);
void rpc_error(struct call *c, int status, int code, json_t *data, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* A message before the answer: the answer is a stream from then on. */
void rpc_message(struct call *c, json_t *message);
void rpc_progress(struct call *c, uint64_t done,
                  struct str text); /* as often as is sensible, and only to who wants it */
void rpc_handle(struct call *c);
bool rpc_is_stateless(const struct call *c); /* by its header: of a protocol without sessions */
void rpc_answer_error(struct call *c, int status, enum err_code code, struct str message, const char *hint);

/* ---- sessions ---- */

enum { MCP_SESSIONS_MAX = 8192, MCP_JOBS_MAX = 1024 }; /* of all; of jobs, those that have ended */

struct mcp_session {
    char id[MCP_ID_LEN + 1], tag[MCP_ID_LEN + 1]; /* the tag names it where others may read */
    uint64_t tenant;
    char *actor; /* whose it is; owned */
    const char *version;
    bool can_ask; /* its client knows elicitation */
    usec_t last;  /* monotonic */
    struct list node, calls;
};
#define MCP_SESSION_LABEL "cove.mcp/session" /* of a sandbox that ends with its session */

struct mcp_session *mcp_session_make(struct call *c, const char *version, bool can_ask);
/* The one that the request names. NULL: answered. */
struct mcp_session *mcp_session_of(struct call *c);
void mcp_session_end(struct call *c); /* DELETE */
struct call *mcp_session_call(struct mcp_session *s, bool (*fits)(const struct call *c, const void *ctx),
                              const void *ctx);
void mcp_sessions_free(struct mcp *m);

/* ---- tools ---- */

json_t *tools_describe(void);
void tools_call(struct call *c);
/* Its result: content is taken; text: what a model reads, NULL: the content as JSON. */
void tool_result(struct call *c, json_t *content, struct str text);
/* Members of the arguments; false: something was wrong, and answered. */
#define TOOL_WANTS(c, ...)                                                                                             \
    tool_wants((c), (const struct json_want[]){__VA_ARGS__}, ARRAY_SIZE(((const struct json_want[]){__VA_ARGS__})))
bool tool_wants(struct call *c, const struct json_want *wants, size_t n);

struct str mcp_cut(struct str s, size_t max); /* not in the middle of a character */
/*
 * In an environment paths begin at its copy (empty: that), and who works there does what the call names nobody for; in
 * another sandbox both are left as they are.
 */
struct str mcp_path(const struct call *c, struct str path);
struct str mcp_user(const struct call *c, struct str user);

route_handler sandbox_create_tool, sandbox_list_tool, sandbox_show_tool, sandbox_kill_tool, sandbox_title_tool,
    snapshot_tool, fork_tool, diff_tool, policy_tool, events_tool, denials_tool;
route_handler exec_tool, exec_output_tool, exec_kill_tool, run_code_tool, file_search_tool, commit_tool;

/* A command that is waited for: the call's own, and gone with it. exit NULL: its time was up. */
struct waited {
    struct follow *follow;
    struct buf out[2];
    uint64_t bytes[2], seq;
    uint32_t pid;
    usec_t started;
    void (*done)(struct call *c, struct waited *w, const struct exec_exit *exit);
};
void waited_start(struct call *c, const struct exec_spec *spec,
                  void (*done)(struct call *c, struct waited *w, const struct exec_exit *exit));

route_handler file_read_tool, file_write_tool, file_list_tool, file_edit_tool, file_delete_tool;
route_handler environment_config_tool, environment_add_service_tool;
void grant_tool(struct call *c);
/* The client's answer to a question: is it one? */
bool grant_answered(struct call *c, const json_t *message);
void jobs_free(struct mcp *m);

/* Reads up to max + 1 bytes of a file into body.b; done is called unless it failed, which is answered. c->file until
 * then. */
struct file_bytes {
    struct file_body body;
    bool may_miss; /* a file that isn't there is an empty one */
    void (*done)(struct call *c, struct file_bytes *f);
};
void file_bytes_read(struct call *c, struct str path, uint64_t offset, size_t max, struct file_bytes *f);

/* ---- resources ---- */

route_handler resources_list, resources_templates, resources_read;

/* A header's value that may be "=?base64?...?=": as it was meant. False: malformed. */
bool rpc_decode_header(struct str value, struct arena *arena, struct str *ret_value);

extern const struct route mcp_routes[];
extern const size_t mcp_n_routes;

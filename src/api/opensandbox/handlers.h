/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this façade share. Private to src/api/opensandbox. */
#pragma once

#include "api/kit/call.h"
#include "api/kit/key_name.h"
#include "api/opensandbox/opensandbox.h"
#include "base/map.h"

enum { OPENSANDBOX_EXECD_PORT = 44772, OPENSANDBOX_EGRESS_PORT = 18080 };

/* What it says of a sandbox that the core has no place for stands in the metadata, under names that clients can't use. */
#define OPENSANDBOX_RESERVED "opensandbox.io/"

struct opensandbox {
    struct facade lifecycle, execd, egress;
    char request_id[ID_UUID_LEN + 1]; /* of the request that is being served, when its client gave none */
    struct map commands;              /* id -> struct command (command.c) */
    struct map cells;                 /* id -> struct code_stream (code.c): those that run or wait */
    struct list ended;                /* of those, the first ended longest ago */
    size_t n_ended;
};

/* Answers and drops json. */
void opensandbox_answer(struct call *c, int status, json_t *json);

json_t *opensandbox_time(usec_t at); /* RFC 3339; NULL, so left out, for 0 */

/* The page of a list that the query asks for; false: answered. */
struct page {
    uint64_t number, size, from, total;
    json_t *items;
};
bool page_begin(struct call *c, struct page *p);
bool page_takes(struct page *p); /* one more was found: is it on this page? */
void page_answer(struct call *c, struct page *p);

/* Routes, by file. */
extern const struct route lifecycle_routes[], command_routes[], code_routes[], file_routes[], egress_routes[];
extern const size_t lifecycle_n_routes, command_n_routes, code_n_routes, file_n_routes, egress_n_routes;

/* lifecycle.c */
json_t *lifecycle_sandbox(const struct sandbox *sb);
/* create.c */
void create_sandbox(struct call *c);
json_t *create_policy(const json_t *network, struct err *err); /* ours, of theirs; NULL: ERR_INVALID_ARGUMENT */

/* command.c */
void commands_free(struct opensandbox *o);

#define COMMAND_DIRECTORY "/tmp/.opensandbox" /* inside: logs of commands in the background, and sessions */
enum { COMMAND_ID_LEN = 20 };
bool command_is_id(struct str id);
/* The same when the handler runs again, lest what was allowed be another action. It stands where the route has no argument. */
const char *command_id_once(struct call *c);
/* Starts it and answers with its stream, or why not. */
void command_run(struct call *c, const struct exec_spec *spec, struct str content, bool is_background, const char *id);

/* Events of a stream: bare JSON objects, a blank line behind each. */
enum { SSE_LINE_MAX = 64 * 1024 };
struct sse_lines {
    struct buf rest; /* made with SSE_LINE_MAX */
    bool after_cr;
};
void sse_start(struct call *c);
void sse_ping(struct call *c);
void sse_begin(struct buf *b, const char *type); /* what follows is of it, up to "}\n\n" */
void sse_text(struct buf *b, const char *type, struct str text);
void sse_complete(struct buf *b, usec_t took);
void sse_lines_take(struct sse_lines *l, const char *type, struct str bytes, struct buf *b); /* one event a line */
void sse_line_flush(struct sse_lines *l, const char *type, struct buf *b);                   /* what is left of one */

/* session.c */
void session_make(struct call *c);
void session_run_command(struct call *c);
void session_remove(struct call *c);
/* Runs a shell script as root: done gets its exit status and the first bytes of what it wrote. It ends with the call. */
enum { SCRIPT_OUTPUT_MAX = 64 * 1024 };
void script_run(struct call *c, const char *script, const struct str *args, size_t n_args,
                void (*done)(struct call *c, uint32_t code, struct str output));

/* files.c: {owner, group, mode} of a path as four arguments of a script that FILES_APPLY is part of; NULL: answered. */
enum { FILES_PATHS_MAX = 1024 };
#define FILES_APPLY                                                                                                    \
    "[ -z \"$2$3\" ] || chown -- \"$2${3:+:$3}\" \"$1\" || exit 1; [ -z \"$4\" ] || chmod -- \"$4\" \"$1\" || exit 1; "
const struct str *files_permissions(struct call *c, const char *path, const json_t *one, struct str *to);
void files_script_done(struct call *c, uint32_t code, struct str output);

/* transfer.c */
void transfer_download(struct call *c);
void transfer_upload(struct call *c);

static inline struct opensandbox *opensandbox_of_execd(const struct call *c)
{
    return container_of(c->facade, struct opensandbox, execd);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes in a sandbox: starting them, following their output, feeding and signalling them.
 *
 * A follow is one client's view of one process. Output comes through on_output in order and is not repeated; the caller
 * gives bytes back with exec_ack() once its client has them, and the process is slowed down to that pace (at most
 * WIRE_WINDOW bytes are outstanding). Closing a follow never touches the process: it goes on, its output goes on to the
 * event log and is kept (the last WIRE_WINDOW bytes) for whoever attaches next.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "sandbox/sandbox.h"
#include "wire/proto.h"

struct follow;

struct exec_spec {
    struct str cmd;
    const struct str *args;
    size_t n_args;
    const struct pair *envs; /* on top of the sandbox's */
    size_t n_envs;
    struct str user, cwd; /* empty: default */
    struct str tag;       /* p NULL: none */
    bool pty, stdin_open;
    uint16_t cols, rows;
    /* 0: none. Then SIGKILL to its group and on_end with ERR_DEADLINE_EXCEEDED. Counts while its sandbox runs */
    uint64_t timeout_ms;
    char *said; /* of this size: gets what nobody reads, as exec_remember() has it; NULL: it is dropped */
    size_t said_size;
};

struct exec_exit {
    bool signaled;
    uint32_t code; /* exit code, or the signal's number */
    uint64_t output_bytes;
};

struct exec_ops {
    void (*on_start)(void *ctx, uint32_t pid);
    /* NULL: nobody reads it. */
    void (*on_output)(void *ctx, enum wire_channel channel, struct str bytes);
    /* Ends the follow, which *ret_follow has forgotten by then. exit NULL: err says why (ERR_UNAVAILABLE: the sandbox
     * has ended). */
    void (*on_end)(void *ctx, const struct exec_exit *exit, const struct err *err);
    /* How much on_output may be given at once. NULL: anything. 0: output and the end wait here until an exec_ack(),
     * which may be of 0 bytes. For clients that make much more of output than it is. */
    size_t (*room)(void *ctx);
};

/* Which process. by_tag: tag, else pid. */
struct exec_select {
    bool by_tag;
    uint32_t pid;
    struct str tag;
};

/* -1: refused at once (sandbox not running, guard, limits). Otherwise the ops will be called, and ret_follow, which
 * stays where it is, is NULL again at the end. */
int exec_start(struct sandbox *sb, const struct actor *actor, const struct exec_spec *spec, const struct exec_ops *ops,
               void *ctx, struct follow **ret_follow, struct err *err) WARN_UNUSED;

/*
 * Follows a running process, or one that ended less than 30 s ago. Output begins with what nobody has got yet, or with
 * "now" when another client follows it. timeout_ms ends the follow only.
 */
int exec_attach(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, uint64_t timeout_ms,
                const struct exec_ops *ops, void *ctx, struct follow **ret_follow, struct err *err) WARN_UNUSED;

void exec_ack(struct follow *f, size_t bytes);
void exec_close(struct follow *f); /* no callback afterwards */
/* Appends output to a text of this size, for a message: the last of it, in one line. */
void exec_remember(char *said, size_t size, struct str bytes);

/* Unary operations. done is called once unless cancelled by exec_call_cancel(); `err` NULL on success. */
struct exec_call;
typedef void (*exec_done_fn)(void *ctx, const struct err *err);
void exec_ignore(void *ctx, const struct err *err); /* for who does not wait: its exit tells */

/* bytes: at most 4 MiB, copied. */
int exec_input(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, bool pty,
               struct str bytes, exec_done_fn done, void *ctx, struct exec_call **ret_call,
               struct err *err) WARN_UNUSED;
/* The same within an action that has passed the gate. */
int exec_feed(struct sandbox *sb, const struct exec_select *which, struct str bytes, exec_done_fn done, void *ctx,
              struct exec_call **ret_call, struct err *err) WARN_UNUSED;
int exec_close_stdin(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, exec_done_fn done,
                     void *ctx, struct exec_call **ret_call, struct err *err) WARN_UNUSED;
int exec_signal(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, int signal,
                exec_done_fn done, void *ctx, struct exec_call **ret_call, struct err *err) WARN_UNUSED;
int exec_resize(struct sandbox *sb, const struct actor *actor, const struct exec_select *which, uint16_t cols,
                uint16_t rows, exec_done_fn done, void *ctx, struct exec_call **ret_call, struct err *err) WARN_UNUSED;

/* Running processes that were started through us. All strings are borrowed during the callback. */
struct exec_process {
    uint32_t pid;
    bool has_tag, pty;
    struct str tag, cmd, cwd, user;
    const struct str *args;
    size_t n_args;
    const struct pair *envs;
    size_t n_envs;
    usec_t started;
    uint64_t output_bytes;
};
typedef void (*exec_list_fn)(void *ctx, const struct exec_process *processes, size_t n, const struct err *err);
int exec_list(struct sandbox *sb, const struct actor *actor, exec_list_fn done, void *ctx, struct exec_call **ret_call,
              struct err *err) WARN_UNUSED;

void exec_call_cancel(struct exec_call *call);

/*
 * What was kept beside the log of a long output, from its beginning: of the exec.start with this seq, or by the digest
 * that an event of the sandbox names. For as long as the log has that event, also when the sandbox has ended; while the
 * process runs, what is kept so far. ERR_NOT_FOUND: nothing was, all of it is in the events.
 */
struct exec_kept {
    int fd;                  /* at the beginning; the caller's */
    uint64_t bytes, dropped; /* that count; that came after them */
};
int exec_kept_output(const struct core *core, const char *sandbox, uint64_t seq, enum wire_channel channel,
                     struct exec_kept *ret_kept, struct err *err) WARN_UNUSED;
int exec_kept_artefact(const struct core *core, const char *sandbox, struct str digest, struct exec_kept *ret_kept,
                       struct err *err) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a command in a sandbox and connects it to descriptors of ours, both ways and at the pace of the slower side
 * (http/client/exec_stream.h). Used by run and exec for a person, by cp for tar.
 */
#pragma once

#include "base/buf.h"
#include "cli/service.h"

struct exec_request {
    const char *id;
    char *const *argv;      /* NULL-terminated, at least the program */
    json_t *env;            /* object of strings, borrowed; NULL: none */
    const char *user, *cwd; /* NULL: default */
    bool has_stdin;
    bool has_pty;    /* then stdin_fd is a terminal: raw mode, and its size follows */
    const char *tag; /* what the process is called; NULL: nothing */
    bool attaches;   /* to the process of that tag, which runs already; argv is NULL */
    bool leaves;     /* as soon as it has started: the process goes on */
    bool detaches;   /* by Ctrl-P Ctrl-Q, at a terminal */
};

struct exec_io {
    int stdin_fd, stdout_fd, stderr_fd;            /* borrowed. stdout_fd and stderr_fd -1: captured */
    struct buf *captured_stdout, *captured_stderr; /* with their maximum: the rest is dropped */
    /* INT, TERM, HUP, QUIT go to the command; the same a second time gives up: exec_result.interrupted */
    bool forwards_signals;
    int (*tick)(
        void *ctx); /* about every `tick_ms` while the command runs; may be NULL. Negative: give up, ctx->err is set */
    void *tick_ctx;
    int tick_ms;
};

struct exec_result {
    bool started;
    bool wrote;  /* anything at all */
    int refused; /* STATUS_NOT_FOUND, STATUS_NOT_EXECUTABLE: the command itself could not be started */
    bool ended;  /* by itself: then the next two say how */
    bool signaled;
    uint32_t code;   /* exit code or signal */
    bool dropped;    /* some of its output, where it was captured */
    bool detached;   /* by the person: the process goes on */
    int interrupted; /* the signal with which the person gave up waiting; 0 */
};

/*
 * Signals to forward must be blocked by exec_block_signals() before; that it is done early keeps one that comes while a
 * sandbox is made from ending us between its making and its removal. -1: ctx->err; result->started tells whether the
 * command ran.
 */
void exec_block_signals(void);
int exec_pending_signal(void); /* one that came since, taken; 0: none */
int exec_in_sandbox(struct context *ctx, struct service *s, const struct exec_request *request,
                    const struct exec_io *io, struct exec_result *result) WARN_UNUSED;

/* Of one that is ours and should work: -1 with ctx->err when it was interrupted, or failed having said this. */
int exec_check(struct context *ctx, const struct exec_result *result, struct str said) WARN_UNUSED;

/* The exit code of `cove run` and `cove exec` for this end. failed: exec_in_sandbox() returned -1. */
int exec_status(const struct exec_result *result, bool failed);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command in a sandbox reads. As with a command here, a pipe or a file on our standard input is the command's; a
 * terminal is not, because the command would see a pipe where it expects a terminal: that takes -i, or -t. -n: nothing,
 * for loops that read their own list.
 */
#pragma once

#include "cli/exec/exec.h"

#define EXEC_STDIN_FLAGS                                                                                               \
    {'i', "interactive", NULL, "Connects standard input to the command, even if it is a terminal."},                   \
        {'n', "no-stdin", NULL, "The command gets no input, even from a pipe or a file."},                             \
    {                                                                                                                  \
        't', "tty", NULL, "Gives the command a terminal and connects it to this one; TERM is passed on."               \
    }

enum exec_stdin { EXEC_STDIN_BY_KIND, EXEC_STDIN_ALWAYS, EXEC_STDIN_NEVER };

/* Sets has_stdin. -1: ctx->err, -t without a terminal. */
int exec_choose_stdin(struct context *ctx, struct exec_request *request, enum exec_stdin choice) WARN_UNUSED;

/* -i and -n of the command line; arg: an enum exec_stdin. */
int exec_take_stdin(struct context *ctx, void *arg, const char *flag, const char *value);

/* Names this word a file of the directory here, by a relative path? */
bool exec_is_file_here(const char *word);

/* A next step on stderr for a command that failed and was given a file that is here but not in the sandbox. */
void exec_explain_files(struct context *ctx, const struct exec_request *request);

/* A next step on stderr for a command that ended without a word because it had nothing to read. */
void exec_explain_silence(const struct context *ctx, const struct exec_request *request,
                          const struct exec_result *result);

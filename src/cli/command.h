/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command of `cove` is: a row of text for help and completion, a table of its options, and a function. Each stands in its own
 * cmd_<name>.c; main.c lists them.
 */
#pragma once

#include "base/def.h"
#include "base/err.h"
#include "base/str.h"

struct config;

enum {
    STATUS_OK = 0,
    STATUS_FAILED = 1,
    STATUS_USAGE = 2,
    STATUS_TIMEOUT = 124,        /* run: the sandbox's time was up, as timeout(1) says it */
    STATUS_COVE = 125,           /* run, exec: Cove failed, not the command */
    STATUS_NOT_EXECUTABLE = 126, /* run, exec: as shells do, as is the next */
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128, /* + its number */
};

struct flag {
    int id;               /* the letter when it has one, else 256 and up; unique within the command */
    char letter;          /* 0: none */
    const char *name;     /* without dashes */
    const char *argument; /* "SIZE"; NULL: takes none */
    /*
     * a sentence. When it goes with some forms of the command only, behind those: "ls: ...", "build: ...; tag, publish:
     * ..."
     */
    const char *help;
};

struct context;

struct command {
    const char *name, *summary;
    const char *synopsis;    /* after "cove NAME", one line for each form */
    const char *description; /* paragraphs; a line that begins with a blank is kept as it is */
    const char *exit_status; /* NULL: 0, 1 and 2 */
    const char *examples;    /* lines */
    /*
     * For completion: KIND[=WORD WORD...][|KIND]: what the first operand is, words that it may be instead, what the others are when that is not the same.
     * Kinds are "", "id", "path" (of a file here), "file" (here or in a sandbox), "command", "shell", "subcommand".
     */
    const char *operands;
    const struct flag *flags;
    size_t n_flags;
    /*
     * for help, lines "FLAG TITLE": a group of this title begins with this flag, the first one with the first flag;
     * NULL: none
     */
    const char *flag_groups;
    bool is_local;                   /* it is of this machine: there is no --host and no --tenant */
    bool flags_end_at_operand;       /* what follows the first operand is another program's */
    int (*run)(struct context *ctx); /* an exit code */
};

#define COMMAND_FLAGS(table) .flags = (table), .n_flags = ARRAY_SIZE(table)

/* One run of the program. */
struct context {
    const struct command *command;
    const struct command *const *commands; /* all, NULL-terminated */
    int argc;
    char **argv; /* argv[0] is the command's name; after context_next_flag() ended, argv[argi] is the first operand */
    int argi;
    bool json;
    bool has_flags_left;   /* not all of the command line was looked at */
    uint32_t given;        /* bit i: flags[i] of the command was */
    const char *host;      /* --host or COVE_HOST; NULL: the local socket */
    const char *tenant;    /* --tenant or COVE_TENANT; NULL or empty: none */
    struct config *config; /* loaded when first asked for */
    struct err err;
    char hint[256]; /* what to do about err; empty: nothing comes to mind */
};

/*
 * The next flag of the command line: its id (and *ret_value, NULL for one without argument), 0 when only operands are left, or -1:
 * return context_exit(). Flags that all commands know (--help, --json, --host) are dealt with here.
 */
enum { FLAGS_DONE = 0, FLAGS_STOP = -1 };
int context_next_flag(struct context *ctx, const char **ret_value);
int context_exit(const struct context *ctx); /* after FLAGS_STOP: STATUS_OK for --help, else STATUS_USAGE */

/* For a command that has neither flags of its own nor operands: FLAGS_DONE, or FLAGS_STOP as above, also for an operand. */
int context_take_nothing(struct context *ctx) WARN_UNUSED;

/*
 * Do the flags that were given go with this form of the command ("ls"; "": the one without a word), as their help says? STATUS_OK, or STATUS_USAGE having said
 * what is wrong.
 */
int context_check_form(struct context *ctx, const char *form);

static inline int context_operands(const struct context *ctx)
{
    return ctx->argc - ctx->argi;
}

/* Says what is wrong with the command line and where help is. Returns STATUS_USAGE. */
int context_usage(struct context *ctx, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Prints ctx->err with its hint to stderr, as JSON when --json. Returns `status`. */
int context_fail(struct context *ctx, int status);

/* The configuration, or NULL with ctx->err. */
const struct config *context_config(struct context *ctx);

/* coved, which stands beside this program; or -1 with ctx->err. */
int context_find_coved(struct context *ctx, char **ret_path) WARN_UNUSED;

const struct command *command_find(const struct command *const *commands, const char *name);

/* Its flags, then those that all have (--json, --help) and those have that ask a service (--host, --tenant); NULL: there are no more. */
const struct flag *command_flag(const struct command *command, size_t i);

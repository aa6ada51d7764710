/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command of `cove` is: text for help and completion, a table of its options, and a function. Each stands in its
 * own cmd_<name>.c; cmd/commands.h lists them.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"

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

/* What --help says, of src/cli/help/<name>.txt. */
struct command_text {
    const char *synopsis;    /* after "cove NAME", one line for each form */
    const char *description; /* paragraphs; a line that begins with a blank is kept as it is */
    const char *exit_status; /* NULL: 0, 1 and 2 */
    const char *examples;    /* lines */
};

struct command {
    const char *name, *summary;
    const struct command_text *text;
    /*
     * For completion: KIND[=WORD WORD...][|KIND]: what the first operand is, words that it may be instead, what the
     * others are when that is not the same. Kinds are "", "id", "path" (of a file here), "file" (here or in a sandbox),
     * "command", "shell", "subcommand".
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
    char **argv; /* argv[0] is the command's name; after context_read(), argv[argi] is the first operand */
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

/* Where a flag's value goes: one of the places, or `json`, under `member` or the flag's own name. */
struct flag_into {
    const char *name; /* of the flag; NULL ends the table */
    bool *on;
    const char **text;
    uint64_t *number;
    json_t *json;
    const char *member;
    enum flag_kind { FLAG_PLAIN, FLAG_NUMBER, FLAG_TIME, FLAG_SIZE, FLAG_CPUS } kind; /* plain: true, or the text */
    uint64_t least, most; /* of a number, 0: no most; of a size; of CPUs in thousandths */
    const char *wanted;   /* "a number from 1 to 1000"; NULL for sizes */
    /* Takes it in another way: 0, -1 with ctx->err, or STATUS_USAGE having said what is wrong. */
    int (*take)(struct context *ctx, void *arg, const char *flag, const char *value);
    void *arg;
};

/*
 * Takes all flags of the command line, which are the command's; a row "" is for those without one of their own. NULL:
 * the command has none. Those that all commands know (--help, --json, --host) are dealt with here. FLAGS_DONE, or
 * FLAGS_STOP: return context_exit().
 */
enum { FLAGS_DONE = 0, FLAGS_STOP = -1 };
int context_read(struct context *ctx, const struct flag_into into[]) WARN_UNUSED;
#define CONTEXT_TIME "a time such as 90s or 5m"

int context_read_one(struct context *ctx, const struct flag_into into[]) WARN_UNUSED; /* and one sandbox's id */
#define CONTEXT_READ(ctx, ...) context_read(ctx, (const struct flag_into[]){__VA_ARGS__, {.name = NULL}})

/* The same for a command without operands, of which it says so. */
int context_read_all(struct context *ctx, const struct flag_into into[]) WARN_UNUSED;
#define CONTEXT_READ_ALL(ctx, ...) context_read_all(ctx, (const struct flag_into[]){__VA_ARGS__, {.name = NULL}})

int context_exit(const struct context *ctx); /* after FLAGS_STOP: STATUS_OK for --help, else STATUS_USAGE */

/*
 * Do the flags that were given go with this form of the command ("ls"; "": the one without a word), as their help says?
 * STATUS_OK, or STATUS_USAGE having said what is wrong.
 */
int context_check_form(struct context *ctx, const char *form);

/* A form of a command: its word, how many operands come behind it, what is said of too few or too many. */
struct command_form {
    const char *word;
    int (*run)(struct context *ctx, void *options); /* ctx->argi is behind the word; an exit code */
    int least, most;
    const char *wrong; /* NULL: what is said where one sandbox's id is wanted */
};
enum { FORM_MANY = INT32_MAX };

/* Is it this word, or another one that people type for it: list for ls, remove and delete for rm? */
bool context_is_word(const char *given, const char *word);

/* Runs the one that the command line names. An exit code, also when it names none, or wrongly. */
int context_form(struct context *ctx, const struct command_form forms[], size_t n, void *options);

/* Before context_read(): how many words stand behind "--", to which getopt moves the others. -1: there is no "--". */
int context_words_behind(const struct context *ctx);

static inline int context_operands(const struct context *ctx)
{
    return ctx->argc - ctx->argi;
}

/* Says what is wrong with the command line and where help is. Returns STATUS_USAGE. */
int context_usage(struct context *ctx, const char *fmt, ...) PRINTF_LIKE(2, 3);
int context_one_sandbox(struct context *ctx, int n); /* of a command that takes one id, and was given n */

void context_hint(struct context *ctx, const char *fmt, ...) PRINTF_LIKE(2, 3); /* what to do about ctx->err */

/* Prints ctx->err with its hint to stderr, as JSON when --json. Returns `status`. */
int context_fail(struct context *ctx, int status);

/* The configuration, or NULL with ctx->err. */
const struct config *context_config(struct context *ctx);

/* coved, which stands beside this program; or -1 with ctx->err. */
int context_find_coved(struct context *ctx, char **ret_path) WARN_UNUSED;

const struct command *command_find(const struct command *const *commands, const char *name);

/* Its flags, then those that all have (--json, --help) and those have that ask a service (--host, --tenant); NULL:
 * there are no more. */
const struct flag *command_flag(const struct command *command, size_t i);

/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the Dockerfile's reader share: its state, and how words are read. Not for others. */
#pragma once

#include "cli/build/dockerfile.h"

enum { WORDS_MAX = 128 };

struct variable {
    struct str name, value;
    bool is_env, has_value;
};

struct parser {
    const char *name;
    struct arena *arena;
    struct err *err;
    struct dockerfile *file;
    struct dockerfile_step steps[DOCKERFILE_STEPS_MAX];
    struct variable variables[DOCKERFILE_ARGS_MAX];
    size_t n_variables;
    const char *const *build_args;
    size_t n_build_args;
    size_t n_globals;                                        /* of ARGs before the first FROM */
    struct str as;                                           /* the name of the stage that is read */
    struct variable *stage_variables[DOCKERFILE_STAGES_MAX]; /* at the end of each */
    size_t n_stage_variables[DOCKERFILE_STAGES_MAX];
    struct str entrypoint, cmd; /* as shell text */
    bool sets_user, sets_workdir, entrypoint_is_shell;
    char escape;
    unsigned line;
};

/* "<name>:<line>: <message>" */
int words_fail(struct parser *p, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

struct variable *words_find(struct parser *p, struct str name); /* NULL: not set */
int words_set(struct parser *p, struct str name, struct str value, bool has_value, bool is_env) WARN_UNUSED;

/*
 * One word: quotes go, variables are replaced. keeps: for ENV, whose text the service expands once more: what is not
 * known stays, and dollar signs that are meant as such get a backslash.
 */
int words_expand(struct parser *p, struct str s, bool keeps, struct str *ret_text) WARN_UNUSED;

/* The next word with its quotes and escapes as they are. False at the end. */
bool words_next(const struct parser *p, struct str *rest, struct str *ret_word);

/* ["a", "b"]: 1 with the words; 0: it is no such list. */
int words_json(struct parser *p, struct str text, struct str *words, size_t *ret_n);

/* The text of RUN, CMD and ENTRYPOINT for a shell. */
struct str words_shell(struct parser *p, struct str rest, bool *ret_is_shell);

bool words_is_blank(char c);

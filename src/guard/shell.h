/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which programs a command would run, as far as its text says: looks through shells (`bash -lc "..."`, pipes, lists,
 * substitutions, here-documents) and through programs that run another one (env, sudo, timeout, xargs, find -exec,
 * ...).
 *
 *  1. It expands only the parameters that `sh -c TEXT NAME ARGUMENT...` says: what only a run can tell (variables,
 *     patterns, code of other languages) is named by is_unreadable.
 *  2. In doubt it says more: an option that might have taken the next word gives two commands, one for each reading.
 *  3. Bounded: SHELL_COMMANDS_MAX, SHELL_DEPTH_MAX, SHELL_WORDS_MAX of one and SHELL_WORDS_ALL of all, SHELL_TEXT_MAX,
 *     SHELL_EXPANDED_MAX; what is beyond is unreadable.
 */
#pragma once

#include "base/arena.h"

enum {
    SHELL_COMMANDS_MAX = 256,
    SHELL_DEPTH_MAX = 12,
    SHELL_WORDS_MAX = 1024,
    SHELL_WORDS_ALL = 8192,
    SHELL_TEXT_MAX = 64 * 1024,
    SHELL_EXPANDED_MAX = 4 * SHELL_TEXT_MAX
};

struct shell_command {
    const struct str *words; /* [0]: the program without its directories */
    size_t n_words;
    const struct str *writes; /* files that redirections write */
    size_t n_writes;
    unsigned group; /* commands that share their input: a stage of a pipeline */
};

struct shell_line {
    struct shell_command all[SHELL_COMMANDS_MAX];
    unsigned
        feeds[SHELL_COMMANDS_MAX + 1]; /* by group: the one that reads what it writes, as input or as words; 0: none */
    size_t n;
    unsigned n_groups;
    bool is_unreadable;
    size_t text, n_words, n_expanded; /* that were read; bytes of parameters that were put in */
};

/* argv is that of execve(). All that the line points to is in the arena, or in argv. */
void shell_read(struct shell_line *line, struct arena *arena, const struct str *argv, size_t n);

/* Does what one writes get to the other, however many stages are between? */
bool shell_feeds(const struct shell_line *line, const struct shell_command *from, const struct shell_command *to);

struct str shell_name(struct str path);                  /* without its directories */
bool shell_is_one_of(struct str word, const char *list); /* of words with blanks between them */

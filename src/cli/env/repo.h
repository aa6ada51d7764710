/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Git repository of the person's on this machine, read and written by git(1) with everything off that could run a
 * program or reach another machine: hooks, file system monitors, filters, drivers, pagers, editors, signing, remotes,
 * the configuration of the system and of the user.
 *
 * What comes out of a sandbox is received and looked at in a directory of our own: a bare repository for as long as a
 * command runs, without the configuration of the person's, on top of its objects.
 */
#pragma once

#include "base/buf.h"
#include "cli/command.h"

struct repo {
    struct context *ctx;
    char *top;          /* its working tree, absolute */
    char *git;          /* the .git of that working tree */
    char *common;       /* the one of all its working trees: objects and refs */
    char *ours;         /* the directory of our own */
    char *name, *email; /* of who commits; NULL before repo_find_settings() */
    char **drivers;     /* "-c", "filter.NAME.smudge=", ...: those of the repository's configuration, off */
    size_t n_drivers;
    char *head;                   /* the commit of HEAD when it was opened; NULL: not known */
    char *refused, *refused_path; /* by repo_refuse(); NULL: nothing, or none is to blame */
    unsigned cpu_seconds;         /* of processor time for each git from here on; 0: as much as for large packs */
    int lock;                     /* held while `ours` is in use: who finds one without removes it */
};

enum repo_side { REPO_OURS, REPO_THEIRS };

/* A ref, and where the name of its commit goes: 40 digits; mem_free(). */
struct repo_ref {
    const char *name;
    char **commit;
};

/*
 * The repository that the directory `path` is in, and the commits of several refs, as by repo_commits(), or none of
 * them. -1: ctx->err.
 */
int repo_open(struct context *ctx, const char *path, const struct repo_ref *refs, size_t n,
              struct repo *ret_repo) WARN_UNUSED;
void repo_fini(struct repo *r);
/* The top of the working tree that `path` is in; mem_free(). NULL: it is in none, or in one that git doesn't take. */
char *repo_top(struct context *ctx, const char *path);

/* Finds out who commits and which drivers are to be off; what needs it does so itself. */
int repo_find_settings(struct repo *r) WARN_UNUSED;

/* Where git reads from and writes to. */
struct repo_io {
    int in;  /* -1: nothing to read */
    int out; /* when `text` is NULL; -1: nowhere */
    struct buf *text;
};

/* Runs git with these arguments. 0, or -1 with ctx->err: what it wrote to stderr. ARGS ends with NULL. */
int repo_git(struct repo *r, enum repo_side side, const struct repo_io *io, const char *const *args) WARN_UNUSED;
#define REPO_GIT(r, side, ...)                                                                                         \
    repo_git(r, side, &(struct repo_io){-1, -1, NULL}, (const char *const[]){__VA_ARGS__, NULL})
#define REPO_ASK(r, side, text, ...)                                                                                   \
    repo_git(r, side, &(struct repo_io){-1, -1, text}, (const char *const[]){__VA_ARGS__, NULL})

/*
 * A file of memory for what a program complains of, full of NUL from the beginning: of a pack that somebody made for
 * that, git complains of each object, which is gigabytes. It doesn't mind that it can't say more. -1: errno.
 */
int repo_complaint(size_t most) WARN_UNUSED;
void repo_complained(int fd, struct buf *complaint); /* what was said there */

/* Begun and left to write to *ret_out, for what is passed on meanwhile. repo_wait(): its end. */
pid_t repo_start(struct repo *r, enum repo_side side, int in, int out, int err, const char *const *args);
int repo_wait(struct repo *r, pid_t pid, const char *what, struct str complaint) WARN_UNUSED;

/* What came out of a sandbox is not taken, for this path's sake, if it has one. -1: ctx->err, ERR_PERMISSION_DENIED. */
int repo_refuse(struct repo *r, struct str path, const char *why);
void repo_refuse_nothing(struct repo *r); /* forgets it */

struct str repo_line(const struct buf *text); /* without line breaks at its end */

/* The object's name of a commit, 40 digits. NULL: there is none, ctx->err says so. mem_free(). */
char *repo_commit(struct repo *r, enum repo_side side, const char *revision);

/* A file of the commit, appended to *text. 1; 0: there is none; -1: ctx->err. */
int repo_file(struct repo *r, const char *commit, const char *path, struct buf *text) WARN_UNUSED;

/* The same of several refs, all or none. */
int repo_commits(struct repo *r, enum repo_side side, const struct repo_ref *refs, size_t n) WARN_UNUSED;

/*
 * The newest commit of that one's history that HEAD has, too: the person has it here, whoever made it. NULL: there is
 * none, ctx->err says so. mem_free().
 */
char *repo_accepted(struct repo *r, const char *commit);

/* Lines for `git update-ref --stdin`: all are done, or none. */
int repo_set_refs(struct repo *r, enum repo_side side, const char *lines) WARN_UNUSED;

/*
 * The one pack that was received in our directory becomes theirs, if it has so many objects. Returns the path of what
 * keeps `git gc` from it, to be removed once a ref leads to it; mem_free(). NULL: it doesn't, as it was before.
 */
char *repo_give_pack(struct repo *r, uint64_t objects);

/* Removes directories of commands that were killed, and what kept their packs. Returns how many directories. */
int repo_sweep(struct repo *r);

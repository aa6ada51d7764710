/* SPDX-License-Identifier: Apache-2.0 */
/* What commands have in common that list and remove things of the service that people give names to: snapshots,
 * volumes. */
#pragma once

#include "cli/exec/terminal.h"
#include "cli/service.h"

/* A column of a table. The member `name` of each row as text, "-" without one, or what `add` makes of it or of the
 * row. */
struct things_column {
    const char *head, *name;
    void (*add)(struct table *t, const json_t *one, const char *name); /* one cell. NULL: the text */
};
void things_size(struct table *t, const json_t *one, const char *name); /* "1.5 GiB"; 0 is not known: "-" */
void things_number(struct table *t, const json_t *one, const char *name);
void things_cpus(struct table *t, const json_t *one, const char *name); /* of thousandths */
void things_ago(struct table *t, const json_t *one, const char *name);  /* "3m": how long ago that time is */
void things_until(struct table *t, const json_t *one, const char *name);

/* compare: as for qsort(3), of two json_t *. */
void things_sort(json_t *all, int (*compare)(const void *a, const void *b));

/* Nothing for no rows. With --json the rows as they are. An exit code. */
int things_table(const struct context *ctx, const json_t *all, const struct things_column *columns, size_t n);

struct things {
    const char *one, *all; /* "volume", "volumes"; the latter is the list's member in the answer, too */
    const char *name;      /* the member of each that says what it is called */
    const char *how_made;  /* "'cove volume create NAME' makes one" */
    const char *how_free;  /* what ends the use of one that can't be removed for that */
    const char *remove;    /* what is asked to DELETE one, with its name behind it: "/cove/v1/volumes/" */
    const struct things_column *columns;
    size_t n_columns;
    void (*warn)(const json_t *all); /* on stderr, before the table; may be NULL */
};

/* target: what is asked for the list. quiet: names only. An exit code. */
int things_list(struct context *ctx, const struct things *what, const char *target, bool quiet);

/*
 * Calls fn for each operand and prints those for which it worked; `done` is their list's name in --json. One that fails
 * (-1: ctx->err) does not keep the others from it. An exit code.
 */
int things_each(struct context *ctx, const char *done, int (*fn)(struct context *ctx, void *arg, const char *name),
                void *arg);
int things_remove(struct context *ctx, const struct things *what);

/* What was made: with --json the answer, else this text of it on a line. An exit code. */
int things_answer(const struct context *ctx, const json_t *answer, const char *name);

const char *things_text(const json_t *one, const char *name); /* "-": there is no such text */

/* SPDX-License-Identifier: Apache-2.0 */
/* What commands have in common that list and remove things of the service that people give names to: snapshots, volumes. */
#pragma once

#include "cli/exec/terminal.h"
#include "cli/service.h"

struct things {
    const char *one, *all; /* "volume", "volumes"; the latter is the list's member in the answer, too */
    const char *name;      /* the member of each that says what it is called */
    const char *how_made;  /* "'cove volume create NAME' makes one" */
    const char *how_free;  /* what ends the use of one that can't be removed for that */
    const char *remove;    /* what is asked to DELETE one, with its name behind it: "/cove/v1/volumes/" */
    void (*print)(const json_t *all);
};

/* target: what is asked for the list. quiet: names only. An exit code. */
int things_list(struct context *ctx, struct service *s, const struct things *what, const char *target, bool quiet);

/* Prints the name of each that is gone. One that can't be removed does not keep the others from it. An exit code. */
int things_remove(struct context *ctx, const struct things *what, char *const *names, int n);

const char *things_text(const json_t *one, const char *name); /* "-": there is no such text */

/* "3m", how long the time of this member is ago, or when it will be; "-": there is no such time. things_add_distance() is of so many microseconds. */
void things_add_time(struct table *t, const json_t *one, const char *name, bool is_past);
void things_add_distance(struct table *t, uint64_t us);

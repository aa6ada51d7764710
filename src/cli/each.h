/* SPDX-License-Identifier: Apache-2.0 */
/* What commands that do one thing to each of several sandboxes have in common. */
#pragma once

#include "cli/service.h"

struct each {
    const char *method;
    const char *verb;   /* of the route: "pause"; NULL: the sandbox itself */
    const char *doing;  /* "pausing", for progress */
    const char *done;   /* the list's name in --json: "paused" */
    const json_t *body; /* of each request; NULL: none */
    /* Of each for which it worked, when the answer has more to say than that; NULL: it has not. */
    void (*answered)(const struct context *ctx, const char *id, const json_t *answer);
    const char *all; /* instead of operands: those in this state, "" for any. NULL: the operands */
    bool (*spares)(const json_t *sandbox); /* one of all that are in it, and that is left so; NULL: none */
};

/* Prints the ids for which it worked. One that fails does not keep the others from it. An exit code. */
int each_sandbox(struct context *ctx, const struct each *what);

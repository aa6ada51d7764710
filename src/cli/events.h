/* SPDX-License-Identifier: Apache-2.0 */
/* What commands have in common that show a sandbox's event log as lines for people: one operand, -f, and with --json
 * the events themselves. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "cli/command.h"

#define EVENTS_FLAGS                                                                                                   \
    {'f', "follow", NULL, "Follows until the sandbox ends."},                                                          \
    {                                                                                                                  \
        0, "last", NULL, "Uses the newest sandbox, even if it has ended."                                              \
    }

void events_command(struct buf *b, const json_t *data); /* of an exec.start, as a shell would take it */

struct events {
    const char *query;      /* what is asked for: "kind=net.&"; "": everything */
    const char *json_kinds; /* of those, --json prints the ones whose kind begins so */
    void (*print)(const json_t *event);
    bool leaves_own_out; /* commands that 'cove env' runs for itself, unless there is --own: EVENTS_OWN */
};

#define EVENTS_OWN                                                                                                     \
    {                                                                                                                  \
        0, "own", NULL, "Includes the commands that 'cove env' runs for itself in an environment. --json always does." \
    }

/* The whole command, flags and all. An exit code. */
int events_run(struct context *ctx, const struct events *what);

/*
 * Takes a stream of events, from number `from` on. With `follows` it asks anew, behind the last one that came, when the
 * service was gone for a moment. An exit code.
 */
struct service;
struct events_want {
    const char *target; /* ends with "from=" or so, to which the number is appended */
    bool follows;
    /* 1: go on; 0: that's enough; -1: ctx->err, which ends it, or with ERR_UNAVAILABLE asks for the same event again */
    int (*take)(struct context *ctx, const json_t *event, struct str line, void *arg);
    void *arg;
};
int events_take(struct context *ctx, struct service *s, const struct events_want *want, uint64_t from);

#define EVENTS_INSIDE                                                                                                  \
    {                                                                                                                  \
        0, "inside", NULL, "Includes what the kernel saw processes inside execute and write. --json always does."      \
    }

struct events_printed {
    bool follows;
    bool has_inside;           /* what processes did inside, too; else it is only counted, on stderr */
    const char *since, *until; /* times as events have them, with six digits of the second; NULL: no end on this side */
};

/* Prints them, each on a line with all that it has; with --json as they came. */
int events_print(struct context *ctx, struct service *s, const char *target, uint64_t from,
                 const struct events_printed *what);

/* The number of an event in its log or the feed, or the last one of a gap: what the next request goes on behind. */
uint64_t events_number(const json_t *event);

/* "10:03:07.123", of its time. */
enum { EVENTS_TIME_MAX = 16 };
void events_time(const json_t *event, char ret_text[static EVENTS_TIME_MAX]);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that is run in contexts: what one cell leaves behind, the next one finds. A context is a runner, a process of
 * the sandbox, started through exec.h when the first cell wants it. A template has runners when its variable COVE_CODE
 * says where and for which languages: "/opt/cove/code python bash javascript".
 */
#pragma once

#include "sandbox/code/frame.h"
#include "sandbox/sandbox.h"

struct code_cell;

enum {
    CODE_CONTEXTS_MAX = 64, /* of one sandbox */
    CODE_CELLS_MAX = 64,    /* that wait for one context */
    CODE_ID_MAX = 63,
};

bool code_is_here(const struct sandbox *sb);

struct code_context_info {
    const char *id, *language, *cwd;
    bool is_busy;
};

/* -1, ERR_HELD: which contexts there are is not known yet, and the actor's turn comes. For those who ask by
 * code_each(); the other functions see to it. */
int code_settled(struct sandbox *sb, const struct actor *actor, struct err *err) WARN_UNUSED;

/* The contexts in order of creation, until fn returns false. There is one for each of Python and JavaScript from the
 * beginning, where there are such runners. */
void code_each(struct sandbox *sb, bool (*fn)(void *ctx, const struct code_context_info *info), void *ctx);

/*
 * The language by the name that clients use ("js"); NULL: there is none such here, and err says which there are.
 * ERR_UNIMPLEMENTED: nothing here runs code.
 */
const char *code_language(struct sandbox *sb, struct str name, struct err *err);

/* Starts one. id: the caller's choice, [a-z0-9-], unused. cwd empty: the home of "user". done comes when its runner is
 * ready. */
typedef void (*code_made_fn)(void *ctx, const struct code_context_info *info, const struct err *err);
struct code_making;
int code_make(struct sandbox *sb, const struct actor *actor, struct str id, const char *language, struct str cwd,
              code_made_fn done, void *ctx, struct code_making **ret_making, struct err *err) WARN_UNUSED;
void code_make_cancel(struct code_making *m); /* the context is made all the same */

/*
 * For a sandbox that nobody has yet: starts the runner of its first context of Python when all that a cell wants is
 * loaded, so that the first cell is only fed to it. 0: done comes; 1: there is nothing to start.
 */
int code_warm(struct sandbox *sb, const struct actor *actor, code_made_fn done, void *ctx, struct err *err) WARN_UNUSED;

/* Its cells end with the error ContextRestarting; what it knew is gone, its id stays. ERR_NOT_FOUND. */
int code_restart(struct sandbox *sb, const struct actor *actor, struct str id, struct err *err) WARN_UNUSED;
int code_remove(struct sandbox *sb, const struct actor *actor, struct str id, struct err *err) WARN_UNUSED;

enum code_event_kind { CODE_STDOUT, CODE_STDERR, CODE_RESULT, CODE_ERROR, CODE_COUNT, CODE_END };

/* Texts of STDOUT and STDERR are whole characters where they are UTF-8. END comes last, once. */
struct code_event {
    enum code_event_kind kind;
    const struct code_frame *frame; /* text, data, name, value, trace, count; NULL for END */
};

/* False: the client is slow, and nothing more is read until code_drained(). */
typedef bool (*code_event_fn)(void *ctx, const struct code_event *e);

struct code_spec {
    struct str context;   /* empty: the one that there is of the language from the first cell on */
    const char *language; /* of code_language(); of the context otherwise */
    struct str code;
    const struct pair *envs; /* for this cell */
    size_t n_envs;
};

/* The cells of one context run one after the other. -1: ERR_NOT_FOUND (context), ERR_RESOURCE_EXHAUSTED, or what the
 * gate says. */
int code_run(struct sandbox *sb, const struct actor *actor, const struct code_spec *spec, code_event_fn fn, void *ctx,
             struct code_cell **ret_cell, struct err *err) WARN_UNUSED;
void code_drained(struct code_cell *cell);
/* The client has gone: no callback any more. A cell that runs is interrupted (SIGINT), one that waits is dropped. Not
 * after END. */
void code_leave(struct code_cell *cell);
/* SIGINT to a cell that runs, for who stays to see its end; one that waits ends without having run. */
int code_interrupt(struct code_cell *cell, const struct actor *actor, struct err *err) WARN_UNUSED;

void code_free(struct sandbox *sb); /* sandbox.c: it goes */

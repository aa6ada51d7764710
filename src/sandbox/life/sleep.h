/* SPDX-License-Identifier: Apache-2.0 */
/* Pause and resume, for what else has a part in them. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* pause.c: the way to sleep */
struct waiter {
    struct list node;
    sandbox_fn done;
    void *ctx;
};
void waiters_add(struct list *waiters, sandbox_fn done, void *ctx);
void waiters_tell(struct list *waiters, struct sandbox *sb, const struct err *err); /* err NULL: sb; empties the list */
/* Asks coved what the state wants of it, if it was not asked yet and nothing of the sandbox is under way that has to be
 * over first. */
void pause_go(struct sandbox *sb);
/* Begins one, of a running sandbox; who waits for it is in sb->pausers. seq: of the action that wants it. */
void pause_start(struct sandbox *sb, enum sup_pause_kind kind, uint64_t seq);
void pause_expired(struct sandbox *sb); /* its time is up, and it is to be paused then */
/* Its session broke, which this state explains: true, and there is nothing more to do. */
bool pause_explains(struct sandbox *sb, const struct err *what);
void pause_drop_session(struct sandbox *sb);
/* What came of the pause, or of the resume. */
void pause_move(struct sandbox *sb, enum sandbox_state to, enum event_kind kind, struct event_data *d);
void pause_lost(struct sandbox *sb, const char *what); /* its agent, or to coved: it ends */
/* Its processes have ended, its files are kept: frees everything about the processes. */
void pause_let_go(struct sandbox *sb);
/* Who waits for a pause, a resume or to be woken hears that it ends. */
void pause_ends(struct sandbox *sb, const struct err *why);

/* resume.c: the way back */
void resume_go(struct sandbox *sb);
void resume_begin(struct sandbox *sb, uint64_t timeout_ms, bool cold, uint64_t seq);
int resume_limit(const struct core *core, struct err *err) WARN_UNUSED;
void resume_runs(struct sandbox *sb);                             /* all of it is there: it is running from here on */
void resume_failed(struct sandbox *sb, const struct err *err);    /* it is paused again */
void resume_attach(struct sandbox *sb);                           /* a session for one that has none, */
void resume_attach_to(struct sandbox *sb);                        /* or for sb->session, which waits for it */
int resume_thaw(struct sandbox *sb, struct err *err) WARN_UNUSED; /* START_BOX */
/* Its processes end, its files are kept. fn's context is the sandbox, with a reference. */
void resume_put_away(struct sandbox *sb, enum sup_pause_kind how, supervisor_fn fn);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the process that `coved run` becomes. It starts coved, starts it again when it dies, and is the parent of
 * all that must outlive it: the first processes of sandboxes and the workers, which coved makes as its own siblings. It
 * reads nothing but coved's messages (wire/keeper.h).
 *
 * Invariants
 *  1. What is recorded survives coved: the keeper holds the descriptors, and reaps a recorded child only when its
 *     record is dropped. So no exit status is lost and no recorded number is reused.
 *  2. All that coved has sent is read before its death is acted on: what was sent is recorded.
 *  3. All its children have it as the source of their parent-death signal. With the keeper everything ends.
 *  4. It never waits for coved, only for its own messages to be taken while coved lists records, which coved does
 *     before anything else.
 *  5. coved reads the configuration that was accepted last, whatever the file says by now: a
 *     crash takes nothing new in. A reload (HUP or USR2) accepts the file if coved finds nothing wrong with it, and
 *     takes it back if no coved can serve with it.
 */
#pragma once

#include "base/err.h"

enum { KEEPER_EXIT_AGAIN = 3 /* coved has made way for another one */ };

/* The configuration in force: a copy of the file that people write, in run_dir (wire/keeper.h has the names), which
 * each coved of this service reads. */
struct accepted {
    char *from;          /* owned: what people write */
    bool may_be_missing; /* `from` may: an empty one then */
    char *path, *before; /* owned */
};

/* Copies the file; coved and its children are led to the copy by COVE_CONFIG from here on. */
int accepted_open(const char *run_dir, struct accepted *ret_accepted, struct err *err) WARN_UNUSED;

/*
 * program: that is executed, also when another file has taken its place meanwhile. config: the file that people write.
 * ready_fd: "ready" is written to it when the first coved serves; or -1. Returns when the service has ended, with the
 * exit status for this process.
 */
int keeper_run(const char *program, struct accepted *config, int ready_fd, struct err *err) WARN_UNUSED;

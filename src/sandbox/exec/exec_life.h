/* SPDX-License-Identifier: Apache-2.0 */
/* Processes in the life of a sandbox. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* exec.c, exec_log.c */
void exec_sandbox_gone(struct sandbox *sb); /* frees the rest of its processes */
void exec_recover(struct sandbox *sb);      /* follow what an earlier worker left running */
void exec_recover_stop(struct sandbox *sb);
/* -1, ERR_HELD: that is under way, and the holder's turn comes when it is over. 0: it is, or nobody can wait. */
int exec_recovered(struct sandbox *sb, struct holder *holder, struct err *err) WARN_UNUSED;
/* Events before `before` are about to go, the newest one is `last`: records once more what exec_recover() must find of
 * processes that run. */
void exec_carry(struct sandbox *sb, uint64_t before, uint64_t last);

void exec_move(struct sandbox *sb); /* it has another session now: what is followed goes on there, from where it is */
void exec_let_go(
    struct sandbox *sb,
    const struct err *why); /* they go on without us, until exec_recover(): as after the end of this worker */

/* Its deadlines stand still while it does (process.c). */
void exec_stand_still(struct sandbox *sb);
void exec_go_on(struct sandbox *sb);

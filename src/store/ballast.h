/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room beside the store that is taken while there is plenty (<path>.reserve, preallocated), for when others have filled
 * the disk: what frees room can be recorded then.
 *
 *  1. A loan gives up one slice, to be asked for only when what frees room could not be written. Whoever asks for
 *     something else is refused until it is over, LOAN_USEC later; what is left of it is taken back.
 *  2. It is made whole again once there is several times its size. Where the file system can't preallocate, or never
 *     has so much, there is none, and nothing can be lent.
 */
#pragma once

#include "base/def.h"

struct ballast;

struct ballast *ballast_open(const char *store_path); /* never NULL */
void ballast_close(struct ballast *b);                /* accepts NULL; the file stays */

bool ballast_lend(struct ballast *b); /* false: nothing is left */
bool ballast_is_lent(const struct ballast *b);
void ballast_tick(struct ballast *b); /* ends a loan that is over, else fills up; for a timer of a second or so */

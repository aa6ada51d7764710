/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does what the record of a sandbox says once more, in a new one, and tells where that came to something else. The new
 * sandbox is a fork of the first checkpoint, when the old one has one; else it is made of the same template, with the
 * same sizes.
 *
 * Done again are commands, one after the other as they were, and what was done to files. The record does not hold
 * everything: what was typed, values of variables, the contents of files. Contents are taken from the checkpoint that
 * followed the write, or from the old sandbox when nothing wrote that file later. What can't be done again is told.
 */
#pragma once

#include "cli/service.h"

/* id: of a sandbox with a record; it may have ended. An exit code: 1 when anything differs. */
int again_run(struct context *ctx, struct service *s, const char *id, bool keeps);

/* SPDX-License-Identifier: Apache-2.0 */
/* What is looked at in commits that came out of a sandbox. */
#pragma once

#include "cli/env/repo.h"

/*
 * Refuses what could make git, or whoever follows paths, leave the repository here: nested repositories, .gitmodules,
 * links that lead out or into .git. Of all commits between the refs `from` and `head`, `work` in our own directory. -1:
 * ctx->err, ERR_PERMISSION_DENIED.
 */
int review_check(struct repo *r, const char *from, const char *head, const char *work) WARN_UNUSED;

/*
 * Says on `risks` which changes between two commits deserve a look first: files that build tools, CI, editors or shells
 * run, lock files, links, files that became executable, binary files, characters that hide or reorder text. Returns how
 * many, or -1. Before that, what is asked for goes to stdout.
 */
enum review_shown { REVIEW_NOTHING, REVIEW_STAT, REVIEW_PATCH };
int review_changes(struct repo *r, const char *from, const char *to, enum review_shown shown, FILE *risks);

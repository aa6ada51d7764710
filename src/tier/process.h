/* SPDX-License-Identifier: Apache-2.0 */
/* The tier process: a container in which directories of the host's, read-only, lie over the template's. */
#pragma once

#include "base/err.h"

/* paths: what is shown, absolute and clean; borrowed for the process's life. None: there is no such tier. */
void process_configure(char *const *paths, size_t n);
int process_probe(struct err *err) WARN_UNUSED;

/* While the host is seen: puts what probe() found below `root`, the stage's. 0 or -errno, as the next ones. */
int process_stage(int root) WARN_UNUSED;

/* In the child, on its copy of the stage: over what a box's root directory has there. *ret_what: what it was about. */
int process_enter(int root, const char **ret_what) WARN_UNUSED;

/* What is shown at `path`, above or below it; NULL: nothing. */
const char *process_overlap(const char *path);

/* In the child, in its root: nothing that is executed from here on gains rights, or writes to what is shown. */
int process_confine(void) WARN_UNUSED;

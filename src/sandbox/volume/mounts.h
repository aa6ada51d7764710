/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes in the life of the core and of a sandbox. Not for façades. */
#pragma once

#include "sandbox/object.h"

/* volume.c */
struct volumes *volumes_new(struct core *core);
int volumes_load(struct core *core, struct err *err) WARN_UNUSED;  /* what the store knows; before the sandboxes */
int volumes_check(struct core *core, struct err *err) WARN_UNUSED; /* against what coved has */
void volumes_abandon(struct core *core, const struct err *why);    /* the core closes */
void volumes_free(struct volumes *all);

/* volume_log.c */
void volume_log_mounted(struct sandbox *sb);   /* the next of its volumes is */
void volume_log_unmounted(struct sandbox *sb); /* all that were */

/* mount.c */
int mounts_check(struct core *core, uint64_t view, const struct volume_mount *mounts, size_t n,
                 struct err *err) WARN_UNUSED;
/* START_VOLUMES */
void mounts_begin(struct sandbox *sb);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control group that all of this service lies in. Each state directory has one of its own, named after it, so that
 * two services on a machine don't end each other's sandboxes; what an earlier coved left in it by dying is killed. It
 * lies in the group of our unit where systemd has given us that one, so that the unit's limits hold for the sandboxes;
 * else at the top of the tree.
 */
#pragma once

#include "base/err.h"

struct cgroup_tree;

int groups_open(const char *state_dir, bool (*spares)(void *ctx, const char *name), void *ctx,
                struct cgroup_tree **ret_tree, struct err *err) WARN_UNUSED;

/* Kills all that lies in it, frozen or not, and removes it. Of a service that ends without a coved that could do it. */
void groups_end(const char *state_dir);

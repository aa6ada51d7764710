/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a container sandbox: what runs in the new namespaces until cove-agent takes over. */
#pragma once

#include "base/def.h"

struct box;
struct cgroup_door;
struct tier_host;

/*
 * Never returns. sock: the body's end. door: to its control group; it enters by itself, because that may wait, which coved can't.
 * box: its tree and whether it was born in its network are settled.
 */
NORETURN void container_child(int sock, const struct tier_host *host, const struct cgroup_door *door,
                              const struct box *box);

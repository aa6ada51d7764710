/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a gVisor sandbox: namespaces in which runsc starts the sentry, with no more rights than a container's root. */
#pragma once

#include "base/def.h"

struct box;
struct cgroup_door;
struct tier_host;

/* Never returns. As container_child(). runsc_fd: the program. */
NORETURN void gvisor_child(int sock, const struct tier_host *host, const struct cgroup_door *door,
                           const struct box *box, int runsc_fd);

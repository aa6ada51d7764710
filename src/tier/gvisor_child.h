/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a gVisor sandbox: namespaces in which runsc starts the sentry, with no more rights than a container's
 * root. */
#pragma once

#include "base/def.h"

struct box;
struct cgroup_door;
struct tier_host;

struct gvisor_runsc {
    int fd;
    bool loads_late; /* what is restored goes on before all of its memory is read */
    bool is_ptraced; /* its platform is ptrace, not systrap */
};

/* Never returns. As container_child(). */
NORETURN void gvisor_child(int sock, const struct tier_host *host, const struct cgroup_door *door,
                           const struct box *box, const struct gvisor_runsc *runsc);

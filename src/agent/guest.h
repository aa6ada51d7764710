/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent as the first process of a virtual machine of ours: what comes before it can be PID 1 of a sandbox. The
 * initramfs has this program as /init and modules as /m/NN-name.ko; the disks say by their serial numbers what they
 * are: "own", and "l00" (topmost), "l01" and so on for the layers below.
 */
#pragma once

#include "base/def.h"

/* Whether this process is that. */
bool guest_is(void);

/*
 * Modules, disks, the overlay, and the usual mounts: behind it "/" is the sandbox's. The port to the host is descriptor
 * `to`. Doesn't return when it can't: the machine ends, and the console says why.
 */
void guest_enter(int to);

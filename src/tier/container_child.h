/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a container sandbox: what runs in the new namespaces until cove-agent takes over. */
#pragma once

#include "base/def.h"

struct box;
struct tier_host;

/*
 * Never returns. sock: the body's end. in_group: it was born in its control group; else it joins by itself, because that may wait for
 * milliseconds, which coved can't.
 */
NORETURN void container_child(int sock, const struct tier_host *host, const struct box *box, bool in_group);

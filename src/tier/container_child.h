/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a container sandbox: what runs in the new namespaces until cove-agent takes over. */
#pragma once

#include "base/def.h"
#include "base/id.h"

/* Payload of TIER_GO, behind its byte; one descriptor with it: the detached root mount. */
struct container_go {
    char id[ID_SANDBOX_LEN + 1];
    char template_id[64];
};

struct box;
struct tier_host;

/*
 * Never returns. sock: the body's end. in_group: it was born in its control group; else it joins by itself, because that may wait for
 * milliseconds, which coved can't.
 */
NORETURN void container_child(int sock, const struct tier_host *host, const struct box *box, bool in_group);

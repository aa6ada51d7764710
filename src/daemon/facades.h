/* SPDX-License-Identifier: Apache-2.0 */
/* All façades of the service, and which of them a request is for. */
#pragma once

#include "api/docker/docker.h"
#include "api/e2b/e2b.h"
#include "api/fusion/fusion.h"
#include "api/mcp/mcp.h"
#include "api/native/native.h"
#include "api/opensandbox/opensandbox.h"

struct facades {
    struct native *native;
    struct e2b *e2b;
    struct opensandbox *opensandbox;
    struct mcp *mcp;
    struct fusion *fusion;
    struct docker_api *docker;
};

/* native: what all have in common is in it. domain: of the sandboxes' host names. open_run_code: it wants no key. */
void facades_open(struct facades *f, const struct native_config *native, const char *domain, bool open_run_code);
bool facades_serve(void *facades, struct http_request *req); /* false: nobody took it, and nothing is answered */
void facades_free(struct facades *f);

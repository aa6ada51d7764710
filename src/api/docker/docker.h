/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Docker's Engine API, with and without a version in front (/v1.44/containers/json), as far as docker, docker-py and
 * what stands on them need it (docs/COMPATIBILITY.md).
 * Containers and images are those of `cove docker` (http/client/docker_names.h). Who asks is found out as in the native
 * API.
 */
#pragma once

#include "http/request.h"

struct builder;
struct core;
struct docker_api;
struct refusals;

struct docker_config {
    struct core *core;         /* borrowed, outlives the façade */
    struct builder *builder;   /* the same; NULL: nothing is pulled */
    struct refusals *refusals; /* the same; NULL: nobody is told */
    uid_t owner_uid;           /* who may connect to the unix socket without a key */
    const char *version;       /* Cove's; copied */
};

struct docker_api *docker_new(const struct docker_config *config);
void docker_free(struct docker_api *d); /* all requests must have ended */

/* A claim (api/kit/facade.h): false for a path that isn't here. */
bool docker_serve(void *docker, struct http_request *req);

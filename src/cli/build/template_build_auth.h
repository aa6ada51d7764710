/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials for the registry of an image, as a Docker configuration has them. No message holds any of them. */
#pragma once

#include "base/arena.h"
#include "cli/command.h"

struct registry_auth {
    const char *user, *password; /* NULL: none are known */
};

/* The registry that the image's name means; "docker.io" when it names none. In the arena. */
const char *registry_of(struct arena *arena, const char *image);

/*
 * {"auths": {"<registry>": {"auth": "<base64 of user:password>"}}}, or with "username" and "password" in it. Both stay
 * NULL when nothing is said of the registry. Strings are in the arena, which is to be wiped. ERR_INVALID_ARGUMENT: it
 * is no such text; ERR_UNIMPLEMENTED: it names a helper, or has a token.
 */
int registry_auth_parse(struct str text, const char *registry, struct arena *arena, struct registry_auth *ret_auth,
                        struct err *err) WARN_UNUSED;

/* file NULL: config.json in DOCKER_CONFIG, or in ~/.docker. Blocks. */
int registry_auth_load(const char *file, const char *registry, struct arena *arena, struct registry_auth *ret_auth,
                       struct err *err) WARN_UNUSED;

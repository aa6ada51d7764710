/* SPDX-License-Identifier: Apache-2.0 */
/* Shared between registry.c (requests and their repetition) and registry_auth.c (who we are). */
#pragma once

#include "image/registry/registry.h"

struct registry {
    struct registry_config config;
    bool plain;                    /* without TLS */
    char host[REFERENCE_HOST_MAX]; /* as http_url_host() says it */
    char *authorization;           /* owned, secret; NULL: none yet */
};

/* Answers a challenge of the registry's. ERR_UNAUTHENTICATED when that takes what we don't have. */
int registry_authenticate(struct registry *r, const struct challenge *c, struct err *err) WARN_UNUSED;

void registry_set_authorization(struct registry *r, const char *scheme, const char *value);

/* For messages: what the server gave as a reason, without anything but printable ASCII; nothing when it may know
 * credentials. */
enum { REGISTRY_REASON_MAX = 100 };
bool registry_is_secretive(const struct registry *r);
void registry_reason(const struct registry *r, const struct buf *body, char ret_text[static REGISTRY_REASON_MAX]);

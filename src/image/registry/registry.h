/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of one repository in a registry (the distribution API, version 2).
 *
 *  1. Credentials go to the registry that the image's name says, and as a password to the token service that this
 *     registry names; to nobody else: not with a redirect to another host, not for a challenge of another host.
 *  2. A blob's bytes are handed on once and in order, however often the connection broke: what comes again is left out.
 *  3. With credentials no text of a server's goes into an error: it could be these, as they are or in disguise.
 *  4. Who fails by accident is tried again, REGISTRY_TRIES times without progress; who refuses or lies is not.
 */
#pragma once

#include "image/registry/http.h"
#include "image/registry/manifest.h"

enum { REGISTRY_TRIES = 5, REGISTRY_HOPS = 5, REGISTRY_TOKEN_MAX = 32 * 1024 };

struct registry_config {
    struct http *http; /* borrowed, as all below */
    const struct http_hosts *hosts;
    const struct reference *ref;
    const char *username, *password; /* or NULL */
    const char *token;               /* or NULL */
    usec_t until;
    bool (*canceled)(void *ctx);
    void *ctx;
};

struct registry;
struct registry *registry_new(const struct registry_config *config);
void registry_free(struct registry *r);
DEFINE_AUTO(struct registry *, registry_free)

/*
 * Credentials stand in the text, or begin there: plainly, percent-encoded or in base64, four characters at least. Such
 * an error loses its message: servers choose names of hosts, media types and files.
 */
bool registry_is_told(const struct registry *r, const char *text);
void registry_withhold(const struct registry *r, struct err *err);

/* name: a tag or a digest; of a digest the bytes are verified. Appended to ret_text. ret_type: "" when the server says
 * none. */
int registry_manifest(struct registry *r, const char *name, struct buf *ret_text, char ret_type[static 128],
                      struct err *err) WARN_UNUSED;

/* Hands exactly blob->size bytes to fn, or fails. Their digest is fn's to verify. */
typedef int (*registry_fn)(void *ctx, const void *p, size_t n, struct err *err);
int registry_blob(struct registry *r, const struct image_blob *blob, registry_fn fn, void *ctx,
                  struct err *err) WARN_UNUSED;

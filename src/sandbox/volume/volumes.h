/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes: named directories that outlive sandboxes and can be mounted into several at a time. One that is not in the
 * pool that the service has now (it was made in another one) keeps its name and token; it can't be mounted, opened or
 * measured (ERR_FAILED_PRECONDITION), but dropped: then it is forgotten.
 */
#pragma once

#include "sandbox/sandbox.h"

enum { VOLUME_NAME_MAX = 63, VOLUME_ID_LEN = 24, VOLUME_MOUNTS_MAX = 16, VOLUMES_OPEN_MAX = 64 };

struct volume {
    uint64_t tenant;
    const char *id;   /* "vol-" and 20 of [a-z0-9] */
    const char *name; /* [a-zA-Z0-9._-], unique in the tenant */
    const char *token;
    uint64_t limit_bytes; /* 0: none */
    usec_t created;
    size_t mounted;      /* in how many sandboxes */
    uint64_t used_bytes; /* while volume_usages() tells its caller; 0: not known */
};

/* view: store/tenant_rows.h. ref: id or name. Valid until control returns to the loop; NULL: unknown. */
const struct volume *volume_find(struct core *core, uint64_t view, struct str ref);
void volume_each(struct core *core, uint64_t view, bool (*fn)(void *ctx, const struct volume *v),
                 void *ctx); /* by name */

bool volume_is_in_pool(
    const struct volume *v); /* of the above; not known before coved has said, right after start: true */

typedef void (*volume_fn)(void *ctx, const struct volume *v, const struct err *err);
/* ERR_ALREADY_EXISTS: the name is taken; ERR_INVALID_ARGUMENT. */
int volume_make(struct core *core, const struct actor *actor, struct str name, uint64_t limit_bytes, volume_fn done,
                void *ctx, struct err *err) WARN_UNUSED;
/* done gets no volume. ERR_NOT_FOUND; ERR_FAILED_PRECONDITION: mounted, by whom says the message. */
int volume_drop(struct core *core, const struct actor *actor, struct str ref, volume_fn done, void *ctx,
                struct err *err) WARN_UNUSED;
typedef void (*volume_usage_fn)(void *ctx, uint64_t used_bytes, const struct err *err);
int volume_usage(struct core *core, uint64_t view, struct str ref, volume_usage_fn done, void *ctx,
                 struct err *err) WARN_UNUSED;
/* Of all, for volume_each() in done(); err NULL: success. All who ask at the same time are answered together, so coved
 * has no more to do for them than for one. */
typedef void (*volume_usages_fn)(void *ctx, const struct err *err);
int volume_usages(struct core *core, volume_usages_fn done, void *ctx, struct err *err) WARN_UNUSED;

/*
 * A sandbox of ours, hidden, through which its content is read and written by the file calls (files.h): there the
 * volume is "/", and no link leads out of it. Made when first needed, gone 60 s after the last one let go of it. Each
 * sandbox that done gives is followed by volume_release() and sandbox_unref(). At most VOLUMES_OPEN_MAX volumes are in
 * use at a time (ERR_RESOURCE_EXHAUSTED).
 */
int volume_open(struct core *core, const struct actor *asker, struct str ref, sandbox_fn done, void *ctx,
                struct err *err) WARN_UNUSED;
void volume_release(struct core *core, struct sandbox *sb);

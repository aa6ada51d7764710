/* SPDX-License-Identifier: Apache-2.0 */
/* The entrypoint of a sandbox and its hooks ("lifecycle": preStart, periodic). Private to src/api/opensandbox. */
#pragma once

#include "api/opensandbox/handlers.h"

#define OPENSANDBOX_TAG "opensandbox:" /* of their processes, in front of what they are */
#define OPENSANDBOX_PERIODIC "periodic:"
#define OPENSANDBOX_END "end" /* reserved metadata: whose entrypoint ended, and how */
#define OPENSANDBOX_PRE_FAILED "preStart failed"

enum { SCHEDULE_FIELDS = 5 };

struct schedule {
    uint64_t every_s;  /* 0: by the pattern */
    char pattern[768]; /* an extended regular expression for "minute hour day month weekday", without ' */
};

/* Five fields of cron, "@daily" and its like, "@every 1h30m". */
int schedule_parse(struct str text, struct schedule *ret_schedule) WARN_UNUSED;
int schedule_duration(struct str text, uint64_t *ret_s) WARN_UNUSED; /* "1h30m", "90s"; at least a second */

/* What the body asks for; all memory is the arena's. */
int hooks_read(const json_t *body, struct arena *a, struct osb_hooks **ret_hooks, struct err *err) WARN_UNUSED;
void hooks_start(struct opensandbox *o, struct arena *a, const struct osb_hooks *hooks, const struct str *entrypoint,
                 size_t n_entrypoint, struct sandbox *sb, const struct actor *actor);
void hooks_free(struct opensandbox *o);

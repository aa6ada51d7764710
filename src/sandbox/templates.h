/* SPDX-License-Identifier: Apache-2.0 */
/* What sandboxes can be made from, for façades. The registry is the core's. */
#pragma once

#include "sandbox/core.h"
#include "store/tenant_rows.h"
#include "template/builds.h"

/* By id or alias: template_resolve(). Valid until control returns to the loop. */
int core_template_find(struct core *core, uint64_t view, struct str ref, const struct template **ret_template,
                       struct err *err) WARN_UNUSED;

/* By id, until fn returns false. */
void core_templates_each(struct core *core, uint64_t view, bool (*fn)(void *ctx, const struct template *t), void *ctx);

/* Snapshots that fit: newest first, then by reference, each once however many tags it has. The vector is the caller's
 * to free. */
size_t core_snapshots(struct core *core, uint64_t view, bool (*fits)(const void *ctx, const struct template *t),
                      const void *ctx, const struct template ***ret_found);
int template_order(const struct template *a, usec_t built, const char *ref); /* < 0: a comes before that one */
const char *template_called(const struct template *t);                       /* its reference, or else its id */

/* The defaults of a sandbox made from it. */
uint32_t core_template_cpu_milli(const struct core *core, const struct template *t);
uint64_t core_template_memory_bytes(const struct core *core, const struct template *t);
uint64_t core_template_disk_bytes(const struct core *core, const struct template *t); /* 0: no limit */

/*
 * The boundary of a sandbox of it. wanted: "": whatever the template, then the service says. NULL, with err (may be
 * NULL) set: there is none of that name, it can't be had here, or the template demands a stronger one. Valid as long as
 * the core.
 */
const char *core_tier(const struct core *core, const struct template *t, struct str wanted, struct err *err);

/*
 * Actions: the guard is asked, the service's log says who and what (action.h). What they change is in the store's
 * batch, except for the last, which commits. As those of template/builds.h that are named alike.
 */
int core_template_request(struct core *core, const struct actor *actor, const struct template_request *request,
                          const struct template_build **ret_build, struct err *err) WARN_UNUSED;
int core_template_tag(struct core *core, const struct actor *actor, struct str target, const struct str *tags, size_t n,
                      const char **ret_build, struct err *err) WARN_UNUSED;
int core_template_untag(struct core *core, const struct actor *actor, struct str name, const struct str *tags, size_t n,
                        struct err *err) WARN_UNUSED;
int core_template_publish(struct core *core, const struct actor *actor, struct str ref, bool is_public,
                          struct err *err) WARN_UNUSED;
/*
 * Drops a template or snapshot by id or name; by name and tag, of a name with several snapshots, that one alone.
 * ERR_NOT_FOUND; ERR_FAILED_PRECONDITION with the names of up to four sandboxes that were made from it and live.
 */
int core_template_remove(struct core *core, const struct actor *actor, struct str ref, struct err *err) WARN_UNUSED;

/* The registry itself, for those who read it, and who build (template/builds.h). What they changed is in the store's
 * batch: one of these follows. */
struct template_registry *core_templates(const struct core *core);
void core_templates_changed(struct core *core);                            /* it is committed soon */
int core_templates_commit(struct core *core, struct err *err) WARN_UNUSED; /* now; undone when it fails */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants.
 *
 *  1. There is always the tenant "default". As long as it is the only one, nobody sees anything of tenants.
 *  2. What is made or changed here is in the store before it is answered, and counts from the next request on.
 *  3. A tenant's number is never given out again: what an old one left (logs) is nobody's.
 */
#pragma once

#include "sandbox/owner.h"
#include "sandbox/quota.h"

enum {
    TENANT_NAME_LEN_MAX = 63, /* [a-z0-9-], the first a letter */
};

#define TENANT_NAME_DEFAULT "default"

/*
 * Members of core_config.group_gid have a tenant each, "uid-<number>", which is made when they first come; what is
 * theirs on this machine is that tenant's.
 */
int tenant_of_uid(struct core *core, const struct actor *actor, uid_t uid, uint64_t *ret_number,
                  struct err *err) WARN_UNUSED;
bool tenant_is_uid(const char *name, uid_t *ret_uid); /* of such a name; NULL: false */

/* ERR_NOT_FOUND. */
int tenant_find(struct core *core, struct str name, uint64_t *ret_number, struct err *err) WARN_UNUSED;
const char *tenant_name(struct core *core, uint64_t number); /* NULL: it is gone */
/*
 * The id of the log of what somebody does that concerns no sandbox and no volume: of the tenant's own, so that nobody
 * pushes the records of others out of theirs; of the default one, and of one that is gone, SERVICE_LOG_ID.
 */
const char *tenant_log(struct core *core, uint64_t number);
/* Whose the log under this id is, of a tenant, or of a sandbox or a volume that is there or was: 0; ERR_NOT_FOUND. */
int tenant_of_log(struct core *core, const char *id, uint64_t *ret_number, struct err *err) WARN_UNUSED;

/* ---- tenants: what an operator does ---- */

struct tenant_info {
    const char *name;
    uint64_t number;
    usec_t created;
    const struct quota_user *quota;
    const struct owner *owner;
    size_t n_keys, n_templates, n_checkpoints;
};

void tenant_each(struct core *core, void (*fn)(void *ctx, const struct tenant_info *info), void *ctx); /* by name */
int tenant_info(struct core *core, struct str name, struct tenant_info *ret_info, struct err *err) WARN_UNUSED;
/* limits: as below; NULL: none. */
int tenant_create(struct core *core, const struct actor *actor, struct str name, const int64_t *limits,
                  struct err *err) WARN_UNUSED;
/* limits[i] < 0: as it was. */
int tenant_set(struct core *core, const struct actor *actor, struct str name, const int64_t limits[static QUOTA_MAX],
               struct err *err) WARN_UNUSED;
/* With its keys (key.h). ERR_FAILED_PRECONDITION: it has sandboxes, volumes or templates. */
int tenant_remove(struct core *core, const struct actor *actor, struct str name, struct err *err) WARN_UNUSED;

/* ---- internal to src/sandbox ---- */

struct tenants *tenants_new(struct core *core);
int tenants_load(struct core *core, struct err *err) WARN_UNUSED;
void tenants_free(struct tenants *all);
struct quota_user *tenant_quota(struct core *core, uint64_t number); /* NULL: it is gone */
struct owner *tenant_owner(struct core *core, uint64_t number);      /* the same */
bool tenant_has_others(const struct core *core);                     /* than the default one */

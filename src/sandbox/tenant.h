/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants and the keys to them.
 *
 *  1. There is always the tenant "default". The key in the key file is an administrator's of it; as long as it is the only one, nobody sees anything of tenants.
 *  2. A key is told once, when it is made; only its SHA-256 is kept. It has at least 160 random bits, so nothing slower is needed.
 *  3. What is made, changed or revoked here is in the store before it is answered, and counts from the next request on. Streams that are open go on.
 *  4. A tenant's number is never given out again: what an old one left (logs) is nobody's.
 */
#pragma once

#include "sandbox/principal.h"
#include "sandbox/quota.h"

enum {
    TENANT_NAME_LEN_MAX = 63, /* [a-z0-9-], the first a letter */
    KEY_NAME_LEN_MAX = 63,    /* [A-Za-z0-9._-] */
    KEY_ID_LEN = 16,          /* "key-" and 12 of [a-z0-9] */
    KEY_PREFIX_MAX = 8,
    KEY_TEXT_LEN = KEY_PREFIX_MAX +
                   40, /* at most: what the key of the key file begins with ("cove_"), and 40 hexadecimal digits */
};

#define TENANT_NAME_DEFAULT "default"

/* ---- for every request ---- */

/* False: unknown, expired or revoked. *ret_who's strings are valid until control returns to the loop. */
bool tenant_authenticate(struct core *core, struct str key, struct principal *ret_who);
/* Who has waited since it asked: ERR_UNAUTHENTICATED when its key was revoked, or has expired. */
int tenant_still_good(const struct core *core, const struct principal *who, struct err *err) WARN_UNUSED;
bool tenant_has_keys(const struct core *core);          /* else nobody can be told from anybody */
void tenant_set_key(struct core *core, struct str key); /* the one of the key file; empty: none */

/*
 * Members of core_config.group_gid have a tenant each, "uid-<number>", which is made when they first come; what is theirs on this machine is that tenant's.
 */
int tenant_of_uid(struct core *core, const struct actor *actor, uid_t uid, uint64_t *ret_number,
                  struct err *err) WARN_UNUSED;
bool tenant_is_uid(const char *name, uid_t *ret_uid); /* of such a name; NULL: false */

/* ERR_NOT_FOUND. */
int tenant_find(struct core *core, struct str name, uint64_t *ret_number, struct err *err) WARN_UNUSED;
const char *tenant_name(struct core *core, uint64_t number); /* NULL: it is gone */
/* Whose the log under this id is, of a sandbox or a volume that is there or was: 0; ERR_NOT_FOUND. */
int tenant_of_log(struct core *core, const char *id, uint64_t *ret_number, struct err *err) WARN_UNUSED;

/* ---- tenants: what an operator does ---- */

struct tenant_info {
    const char *name;
    uint64_t number;
    usec_t created;
    const struct quota_user *quota;
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
/* With its keys. ERR_FAILED_PRECONDITION: it has sandboxes, volumes or templates. */
int tenant_remove(struct core *core, const struct actor *actor, struct str name, struct err *err) WARN_UNUSED;

/* ---- keys: what an administrator does in a tenant ---- */

struct key_spec {
    struct str name;
    enum scope scope;    /* up to SCOPE_ADMIN */
    struct str sandbox;  /* n 0: all */
    uint64_t expires_ms; /* from now; 0: never */
};

struct key_info {
    const char *id, *name, *tenant, *sandbox; /* sandbox NULL: all */
    enum scope scope;
    usec_t created, expires,
        old_until; /* old_until: the key before the last rotation is good until then; 0: no longer */
};

const char *scope_name(enum scope scope); /* "admin" */
/* By name. */
void key_each(struct core *core, const struct principal *who, void (*fn)(void *ctx, const struct key_info *info),
              void *ctx);
/* Of the actor's tenant. ERR_ALREADY_EXISTS: the name is taken. */
int key_create(struct core *core, const struct actor *actor, const struct key_spec *spec,
               char ret_key[static KEY_TEXT_LEN + 1], struct key_info *ret_info, struct err *err) WARN_UNUSED;
/* ref: id or name. */
int key_rotate(struct core *core, const struct actor *actor, struct str ref, uint64_t grace_ms,
               char ret_key[static KEY_TEXT_LEN + 1], struct key_info *ret_info, struct err *err) WARN_UNUSED;
int key_revoke(struct core *core, const struct actor *actor, struct str ref, struct err *err) WARN_UNUSED;

/* ---- internal to src/sandbox ---- */

struct tenants *tenants_new(struct core *core);
int tenants_load(struct core *core, struct err *err) WARN_UNUSED;
void tenants_free(struct tenants *all);
struct quota_user *tenant_quota(struct core *core, uint64_t number); /* NULL: it is gone */
bool tenant_has_others(const struct core *core);                     /* than the default one */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys to tenants.
 *
 *  1. The key in the key file is an administrator's of the tenant "default".
 *  2. A key is told once, when it is made; only its SHA-256 is kept. It has at least 160 random bits, so nothing
 *     slower is needed.
 *  3. What is made, changed or revoked here is in the store before it is answered, and counts from the next request
 *     on. The gate (action.c) looks again: what waited before its action is refused. Streams that are open go on.
 */
#pragma once

#include "sandbox/principal.h"
#include "sandbox/quota.h"

enum {
    KEY_NAME_LEN_MAX = 63, /* [A-Za-z0-9._-] */
    KEY_ID_LEN = 16,       /* "key-" and 12 of [a-z0-9] */
    KEY_PREFIX_MAX = 8,
    KEY_TEXT_LEN = KEY_PREFIX_MAX +
                   40, /* at most: what the key of the key file begins with ("cove_"), and 40 hexadecimal digits */
};

/* ---- for every request ---- */

/* False: unknown, expired or revoked. *ret_who's strings are valid until control returns to the loop. */
bool key_authenticate(struct core *core, struct str key, struct principal *ret_who);
/* Who has waited since it asked: ERR_UNAUTHENTICATED when its key was revoked, or has expired. */
int key_still_good(const struct core *core, const struct principal *who, struct err *err) WARN_UNUSED;
bool keys_exist(const struct core *core);                /* else nobody can be told from anybody */
void key_set_builtin(struct core *core, struct str key); /* the one of the key file; empty: none */

/* ---- what an administrator does in a tenant ---- */

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

struct keys *keys_new(void);
int keys_load(struct core *core, struct err *err) WARN_UNUSED; /* after the tenants */
void keys_free(struct keys *all);
size_t key_count(const struct core *core, uint64_t tenant);
void keys_forget_tenant(struct core *core, uint64_t tenant);

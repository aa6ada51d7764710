/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of tenants, of their limits and of their keys. Everything that somebody owns carries its tenant's number,
 * which is never given out again. Strings are borrowed; from reading they are valid during the call of fn, which must
 * not call the store.
 */
#pragma once

#include "base/clock.h"
#include "store/store.h"

#define TENANT_DEFAULT UINT64_C(0) /* whose things are those from before there were tenants; always there */
#define TENANT_ANY UINT64_MAX      /* no tenant: in a look-up, things of all of them */

/* A view is a tenant's number, or TENANT_ANY: whose things there are for somebody. Names are those of one tenant in any
 * case. */
static inline bool view_has(uint64_t view, uint64_t tenant)
{
    return view == TENANT_ANY || view == tenant;
}
static inline uint64_t view_home(uint64_t view)
{
    return view == TENANT_ANY ? TENANT_DEFAULT : view;
}

enum { KEY_HASH_SIZE = 32 };

struct store_tenant {
    uint64_t number;
    const char *name;
    usec_t created_at;
};

struct store_key {
    const char *id, *name, *sandbox; /* sandbox "": not confined to one */
    uint64_t tenant;
    int scope;
    struct str hash, old_hash; /* old_hash empty: none */
    usec_t old_until, created_at, expires_at;
};

/* ERR_ALREADY_EXISTS when the name is taken; the batch goes on. */
int tenant_rows_insert(struct store *s, const char *name, usec_t created_at, uint64_t *ret_number,
                       struct err *err) WARN_UNUSED;
int tenant_rows_delete(struct store *s, uint64_t number, struct err *err) WARN_UNUSED; /* with its limits and keys */
int tenant_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_tenant *row), void *ctx,
                     struct err *err) WARN_UNUSED;

int tenant_rows_put_limit(struct store *s, uint64_t number, const char *what, uint64_t most,
                          struct err *err) WARN_UNUSED;
int tenant_rows_each_limit(struct store *s, void (*fn)(void *ctx, uint64_t number, const char *what, uint64_t most),
                           void *ctx, struct err *err) WARN_UNUSED;

/* New, or in place of the one with the same id. */
int key_rows_put(struct store *s, const struct store_key *row, struct err *err) WARN_UNUSED;
int key_rows_delete(struct store *s, const char *id, struct err *err) WARN_UNUSED;
int key_rows_each(struct store *s, void (*fn)(void *ctx, const struct store_key *row), void *ctx,
                  struct err *err) WARN_UNUSED;

/* Whose the log of a volume is, also when the volume is gone: 1; 0: nobody's but the default tenant's. */
int owner_rows_put(struct store *s, const char *volume, uint64_t tenant, struct err *err) WARN_UNUSED;
int owner_rows_get(struct store *s, const char *volume, uint64_t *ret_tenant, struct err *err) WARN_UNUSED;
int owner_rows_delete(struct store *s, const char *volume, struct err *err) WARN_UNUSED;

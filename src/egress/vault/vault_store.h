/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vault's two files.
 *
 *   vault.key   32 random bytes, mode 0600, the process's own
 *   vault.json  {"version":1,"generation":G,"secrets":[{"name":N,"set_at":US,"box":BASE64}, ...],"seal":BASE64}
 *
 *  1. A box is labelled with its name and time; "seal" is an empty box that is labelled with the generation and the
 *     SHA-256 of all secrets. Nothing can be taken out, put in, exchanged or taken over from an older file without the
 *     key. (A whole older file can: it is a backup.)
 *  2. vault.key is made once. It is never written to and never replaced; what is wrong with it is said, and nothing
 *     else is done.
 *  3. The first start: vault.key.new is written, linked to vault.key, then an empty vault.json is written, then
 *     vault.key.new is removed. So, other than while both names of the key are there, a missing vault.json is a loss
 *     and not a beginning. A missing vault.key always is, when there is a vault.json.
 *  4. vault.json is only ever replaced as a whole, by a file that is on disk. A crash at any moment leaves the one
 *     before or the one after.
 *  5. One process at a time: vault.key is locked while the store is open.
 */
#pragma once

#include "base/err.h"
#include "egress/vault/vault.h"
#include "egress/vault/vault_box.h"

struct secret {
    char name[SECRET_NAME_MAX + 1];
    uint64_t set_at_us;
    size_t at, n; /* where in the region its value is */
};

struct secrets {
    struct secret *items; /* by name; owned */
    size_t n;
    struct locked region;
};

#define SECRETS_NONE ((struct secrets){NULL, 0, LOCKED_NONE})

void secrets_fini(struct secrets *secrets);
bool secret_name_is_valid(struct str name);

static inline struct str secret_value(const struct secrets *all, const struct secret *one)
{
    return str_n(all->region.p + one->at, one->n);
}

struct vault_store {
    int dir_fd, key_fd; /* owned */
    struct locked key;  /* BOX_KEY_BYTES */
    uint64_t generation;
};

int vault_store_open(int dir_fd, struct vault_store **ret_store, struct secrets *ret_secrets,
                     struct err *err) WARN_UNUSED;
void vault_store_close(struct vault_store *s);

/* -1 with *ret_is_in_force: the new file is there, but a power cut may bring back the old one. -1 without: nothing
 * changed. */
int vault_store_save(struct vault_store *s, const struct secrets *secrets, bool *ret_is_in_force,
                     struct err *err) WARN_UNUSED;

static inline const uint8_t *vault_store_key(const struct vault_store *s)
{
    return (const uint8_t *)s->key.p;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets: named ones, that people set, and sealed ones, that only this machine's vault can open again and others keep
 * for it. Lives in cove-egress alone. On disk (state directory, egress/): vault.key, 32 random bytes, mode 0600;
 * vault.json, names and AES-256-GCM boxes, written anew as a whole (temporary file, fsync, rename). In memory values
 * are locked, kept out of core files, and wiped.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { SECRET_NAME_MAX = 64, SECRET_VALUE_MAX = 16 * 1024, SECRETS_MAX = 1024, SEALED_MAX = 32 * 1024 };

struct vault;

/* Makes the key on first use; refuses a key file that others may read. dir_fd: the directory; borrowed during the
 * call. */
int vault_open(int dir_fd, struct vault **ret_vault, struct err *err) WARN_UNUSED;
void vault_close(struct vault *v);

/* name: [A-Za-z_][A-Za-z0-9_.-]*; value: 1 to SECRET_VALUE_MAX bytes without NUL, CR, LF (it goes into header fields).
 * Durable when it returns. */
int vault_set(struct vault *v, struct str name, struct str value, struct err *err) WARN_UNUSED;
int vault_remove(struct vault *v, struct str name, struct err *err) WARN_UNUSED; /* ERR_NOT_FOUND */
void vault_each(const struct vault *v, bool (*fn)(void *ctx, const char *name, uint64_t set_at_us), void *ctx);

/* The value lives until the next call that changes the vault. False: no such secret. */
bool vault_get(const struct vault *v, struct str name, struct str *ret_value);

/* purpose is bound to it: unsealing for another one fails. Appends base64 text. */
int vault_seal(const struct vault *v, struct str purpose, struct str value, struct buf *to) WARN_UNUSED;
int vault_unseal(const struct vault *v, struct str purpose, struct str sealed, struct buf *to) WARN_UNUSED;

/*
 * "Bearer ${secret:NAME}" with the values put in; "${sealed:...}" is unsealed for `purpose`; "$$" is "$". ERR_NOT_FOUND
 * names what is missing. What is appended must be wiped by the caller (mem_wipe).
 */
int vault_expand(const struct vault *v, struct str purpose, struct str text, struct buf *to,
                 struct err *err) WARN_UNUSED;

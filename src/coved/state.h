/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state directory: who may have it, and the small files that coved keeps there.
 *
 *   lock         held by the keeper (coved/workers/keeper.h), or by coved prepare
 *   coved.lock   held by the running coved and its jobs
 *   key          the API key, 0600
 *   pool/        the storage pool, 0700; or pool.btrfs, a file with a file system that holds it (coved/storage/storage.h)
 *   templates/   one <alias>.conf for each template, readable by the worker
 *   api/         cove-api's own: event log and store
 *   egress/      cove-egress's own: secrets, encrypted
 *   tls/         domain and certificate (config/domain.h); ca.pem is readable by all, the keys by root alone
 */
#pragma once

#include "base/err.h"

struct config;

enum { STATE_KEY_MAX = 128 };

/*
 * The users that our workers run as. The accounts "cove" and "cove-egress" if they exist, else ids without an account,
 * below the ranges of sandboxes.
 */
enum state_user { STATE_API, STATE_EGRESS, STATE_NETMAKER };
uid_t state_uid(enum state_user user);

/* Makes what is missing. */
int state_prepare(const struct config *config, struct err *err) WARN_UNUSED;

#define STATE_LOCK "lock"
#define STATE_LOCK_COVED "coved.lock"

/*
 * Holds the lock until *ret_fd is closed; ERR_ALREADY_EXISTS when another has it. Children of one that died may still
 * have it while the kernel ends them: these are waited for, half a minute at most.
 */
int state_lock(const struct config *config, const char *name, int *ret_fd, struct err *err) WARN_UNUSED;

/* COVE_API_KEY, else the key file, made at the first call: config->key_prefix and 40 hexadecimal digits. */
int state_key(const struct config *config, char ret_key[static STATE_KEY_MAX], struct err *err) WARN_UNUSED;

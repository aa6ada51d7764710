/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the store and how older files become current ones. */
#pragma once

#include "base/err.h"

struct sqlite3;

enum { SCHEMA_APPLICATION_ID = 0x436f7665 }; /* "Cove": says in the file's header whose it is */

/* Step n (from 1) brings user_version n - 1 to n. Steps are only ever added. */
extern const char *const schema_steps[];
extern const size_t schema_n_steps;

/*
 * Reads how old the file is (0: empty) without changing it. Fails when it is another program's, damaged, or newer than
 * n_steps. `path` is for messages.
 */
int schema_check(struct sqlite3 *db, const char *path, size_t n_steps, size_t *ret_version,
                 struct err *err) WARN_UNUSED;

/* Applies the steps after `version`, all or none of them. */
int schema_apply(struct sqlite3 *db, const char *path, const char *const *steps, size_t n_steps, size_t version,
                 struct err *err) WARN_UNUSED;

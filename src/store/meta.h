/* SPDX-License-Identifier: Apache-2.0 */
/* A few small values of the whole instance (its id, keys), by name. */
#pragma once

#include "base/buf.h"
#include "store/store.h"

/* Appends the value to *ret_value. Returns 1, or 0 when there is none. */
int meta_get(struct store *s, const char *key, struct buf *ret_value, struct err *err) WARN_UNUSED;
int meta_put(struct store *s, const char *key, struct str value, struct err *err) WARN_UNUSED;
int meta_delete(struct store *s, const char *key, struct err *err) WARN_UNUSED; /* no error when there is none */

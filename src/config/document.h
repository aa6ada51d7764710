/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the YAML of a configuration: a mapping of scalars, lists of scalars and, one level deep, named sections of the
 * same. No anchors, aliases, tags, second documents or repeated keys. Messages begin with "<name>:<line>: ".
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * key: terminated, with its section ("defaults.memory"). first: not for the second and later items of a list. An empty
 * list is not reported. Returns -1 with *err, which is then prefixed with the place.
 */
typedef int (*document_fn)(void *ctx, const char *key, struct str value, bool first, bool in_list, struct err *err);

int document_walk(const char *name, struct str text, bool (*is_section)(struct str key), document_fn fn, void *ctx,
                  struct err *err) WARN_UNUSED;

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared between manifest.c and config.c. */
#pragma once

#include "base/json.h"
#include "image/registry/manifest.h"

/* Of bounded size and depth, no key twice; an object or an array. what: names it in errors. NULL with *err filled. */
json_t *manifest_load(struct str text, const char *what, struct err *err);

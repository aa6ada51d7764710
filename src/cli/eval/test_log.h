/* SPDX-License-Identifier: Apache-2.0 */
/* What test runners print of each test: pytest (-rA, -v), unittest (-v), go test (-v), cargo test, TAP. The bytes may
 * be anybody's. */
#pragma once

#include "base/str.h"

#include <jansson.h>

/* Adds NAME -> true or false to an object. Whatever was said to have failed once has. Colours are taken off; lines that
 * are not UTF-8 are left out. */
void test_log_read(json_t *results, struct str out);

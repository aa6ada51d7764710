/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's code interpreter, as its SDKs find it on port 49999 of a sandbox whose template runs code
 * (sandbox/code/code.h). There is no server inside. */
#pragma once

#include "api/e2b/call.h"

enum { INTERPRETER_PORT = 49999 };

extern const struct route interpreter_routes[];
extern const size_t interpreter_routes_n;

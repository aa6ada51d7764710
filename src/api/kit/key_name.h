/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client with this API key is called in logs: "native:6b86b273", the first 8 hex digits of the key's SHA-256.
 * Tells keys apart and gives away nothing of a key that can't be guessed anyway; whoever has the key can find its name
 * out.
 */
#pragma once

#include "base/str.h"

enum { KEY_NAME_MAX = 32 };

/* prefix: up to 16 bytes. Without a key the name is the prefix alone. */
void key_name(const char *prefix, struct str key, char ret_name[static KEY_NAME_MAX]);

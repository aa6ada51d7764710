/* SPDX-License-Identifier: Apache-2.0 */
/* Text that came out of a sandbox, made fit for messages and records. */
#pragma once

#include "base/str.h"

/* Copies at most size - 1 bytes, cut between characters; control characters and what is not UTF-8 become '?'.
 * Terminates. */
void text_clean(struct str s, char *ret_text, size_t size);

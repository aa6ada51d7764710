/* SPDX-License-Identifier: Apache-2.0 */
/* What a text shows of credentials, taken out: for command lines that are recorded. */
#pragma once

#include "base/buf.h"

/*
 * Appends the text with "***" in place of what stands behind a name that says it carries credentials (as
 * policy_placeholder_is_for() has it: --password=x, API_KEY=x, "Authorization: Bearer x"), of a password in a URL, and
 * of words that begin as well-known tokens do. Who wants to hide something can still do so: this is for accidents.
 */
void mask_secrets(struct str text, struct buf *to);

/* An argument whose next one is the value: --password. */
bool mask_wants_next(struct str argument);

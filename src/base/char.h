/* SPDX-License-Identifier: Apache-2.0 */
/* Characters of a text that strangers wrote. */
#pragma once

#include "base/str.h"

/* Cuts the first one off, s->n > 0; a byte that belongs to none is taken for itself. */
uint32_t char_take(struct str *s);

/* It shows nothing, or moves what is shown. U+FE0F isn't among them: it stands behind many an emoji. */
bool char_is_hidden(uint32_t c);

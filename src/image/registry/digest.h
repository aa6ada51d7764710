/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of content: "sha256:" and 64 lower-case hexadecimal digits. Other algorithms are refused where they are
 * named. */
#pragma once

#include "base/str.h"

enum { DIGEST_LEN = 71, DIGEST_TEXT_MAX = 72 };

bool digest_is(struct str text);

/* Over bytes as they come. */
struct digest;
struct digest *digest_new(void); /* never NULL */
void digest_free(struct digest *d);
DEFINE_AUTO(struct digest *, digest_free)

void digest_add(struct digest *d, const void *p, size_t n);
void digest_take(struct digest *d, char ret_text[static DIGEST_TEXT_MAX]); /* ends it */

void digest_of(struct str bytes, char ret_text[static DIGEST_TEXT_MAX]);

/* SPDX-License-Identifier: Apache-2.0 */
/* Which coding a download may have, by RFC 9110 section 12.5.3. */
#pragma once

#include "base/str.h"

enum accept_encoding { ACCEPT_IDENTITY, ACCEPT_GZIP, ACCEPT_NONE };

/* value: p NULL when the header is absent. The one with the highest quality; of equals the one named first. */
enum accept_encoding accept_encoding_choose(struct str value);

bool accept_encoding_allows_identity(struct str value);

/* SPDX-License-Identifier: Apache-2.0 */
/* What a page's Origin says about it. */
#pragma once

#include "base/str.h"

/* May a page of this origin talk to the server that it calls `host`? domain: ours; NULL: none. */
bool origin_is_good(struct str origin, struct str host, const char *domain);

/* SPDX-License-Identifier: Apache-2.0 */
/* What download and upload have in common. */
#pragma once

#include "api/e2b/call.h"
#include "api/e2b/envd/files_query.h"

/* Reads the parameters and checks the right; sets c->user. False: answered. */
bool files_begin(struct call *c, enum files_operation operation, struct files_query *ret_query);

/* Has the request a signature of this sandbox's that is still valid? */
bool files_is_signed(struct http_request *req, const struct sandbox_info *info);

/* SPDX-License-Identifier: Apache-2.0 */
/* What download and upload have in common. */
#pragma once

#include "api/e2b/call.h"
#include "api/e2b/files_query.h"

/* Reads the parameters and checks the right; sets c->user. False: answered. */
bool files_begin(struct call *c, enum files_operation operation, struct files_query *ret_query);

/* Fails by what went wrong with a file: 400 401 404 507 500. A sandbox that is gone cuts the request. */
void files_fail(struct call *c, const struct err *err);

/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the core as HTTP sees them. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* The HTTP status that Connect assigns to the code: not_found is 404 and so on. */
int api_status(enum err_code code);

/* Appends {"code":<status>,"message":"<message>"}, the error body of REST routes. */
void api_error_body(struct buf *b, int status, struct str message);

/* SPDX-License-Identifier: Apache-2.0 */
/* The error body of REST routes; its status is http/connect.h's connect_status(). */
#pragma once

#include "base/buf.h"
#include "base/str.h"

/* Appends {"code":<status>,"message":"<message>"}, the error body of REST routes. */
void api_error_body(struct buf *b, int status, struct str message);

/* SPDX-License-Identifier: Apache-2.0 */
/* What has become of a sandbox, where the route that is asked next knows only that it can't answer. */
#pragma once

#include "cli/service.h"

/* Is it there? -1: ctx->err and hint say that it has ended, was never there or, unless may_be_paused, that it is
 * paused. */
int alive_check(struct context *ctx, struct service *s, const char *id, bool may_be_paused) WARN_UNUSED;

/* After something failed in the middle: if the sandbox is paused now, that is why, and ctx->err says so. doing:
 * "copying". */
void alive_explain_pause(struct context *ctx, const char *id, const char *doing);

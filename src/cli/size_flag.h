/* SPDX-License-Identifier: Apache-2.0 */
/* A size that somebody wrote behind a flag. */
#pragma once

#include "cli/command.h"

/*
 * Bytes. least: what makes sense at all; who writes less has most often left out the unit, and is told so. -1: said on stderr, as context_usage() does: return
 * STATUS_USAGE.
 */
int size_flag_parse(struct context *ctx, const char *flag, const char *text, uint64_t least,
                    uint64_t *ret_bytes) WARN_UNUSED;
